#include "io_probe.h"

#include <thread>

#include "inject.h"

namespace rs {
namespace {

constexpr uint64_t kSelfTestNs = 1'000'000'000;
constexpr unsigned kFewCores = 4;

std::unique_ptr<IoEngine> make_named(const std::string& name, uint32_t entries,
                                     uint32_t threads) {
  if (inject::refuses(name.c_str())) throw Failure(RS_CONFIG, name + " was refused by injection");
  if (name == "uring") return make_uring(entries);
  if (name == "aio") return make_aio(entries);
  return make_pool(entries, threads);
}

// One read of the first page, checked like any other, before a short deadline.
void self_test(IoEngine& engine, const Table& table) {
  Region buffer = Region::anonymous(table.read_bytes(), "no");
  if (!engine.submit({1, table.fd(), table.read_offset(0), table.read_bytes(), buffer.data()}))
    throw Failure(RS_IO, "it took no read");
  Completion done{};
  const uint64_t give_up = now_ns() + kSelfTestNs;
  while (engine.reap(&done, 1, kMs) == 0)
    if (now_ns() > give_up) {
      // The read may still land: keep its buffer for the life of the process.
      [[maybe_unused]] auto* kept = new Region(std::move(buffer));
      throw Failure(RS_DEADLINE, "its test read took more than 1 s");
    }
  if (done.result < 0) throw Failure(RS_IO, "its test read failed: " + errno_text(-done.result));
  if (uint32_t(done.result) < table.expected_bytes(0) ||
      !table.row_ok(buffer.data(), 0, Verify::kRow))
    throw Failure(RS_CORRUPT, "its test read brought a wrong page");
}

}  // namespace

IoChoice choose_io(const Config& config, const Catalog& catalog) {
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  const bool wants_any = config.io == "auto" || config.io == "inline";
  const bool few = config.io == "auto" && config.owners == 0 && cores <= kFewCores;
  IoChoice choice;
  choice.inline_lanes = config.io == "inline" || few;
  const std::vector<std::string> order =
      wants_any ? std::vector<std::string>{"uring", "aio", "pool"}
                : std::vector<std::string>{config.io};
  std::string refused;
  for (const std::string& name : order) {
    try {
      const auto engine = make_named(name, 4, 1);
      self_test(*engine, *catalog.tables().front());
      const uint32_t threads = config.pool_threads;
      choice.kind = engine->kind();
      choice.make = [name, threads](uint32_t entries) {
        return inject::wrap(make_named(name, entries, threads));
      };
      choice.reason = name + ": self-test passed" + refused + "; " +
                      (choice.inline_lanes ? "driven by the lanes" : "driven by an owner thread") +
                      " (" + std::to_string(cores) + " cores, io=" + config.io + ")";
      return choice;
    } catch (const Failure& failure) {
      refused += "; not " + name + ": " + failure.what();
    }
  }
  throw Failure(RS_CONFIG, "no I/O engine works" + refused);
}

}  // namespace rs
