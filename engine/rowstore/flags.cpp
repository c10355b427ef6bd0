#include "flags.h"

namespace rs {
namespace {

constexpr uint64_t kSpinNs = 50'000;
constexpr uint64_t kNapNs = 50'000;

}  // namespace

FlagBinding::FlagBinding(uint32_t lane, uint32_t* ready, uint32_t* done, uint64_t overdue_ns,
                         std::function<uint32_t()> serve)
    : lane_(lane), ready_(ready), done_(done), overdue_ns_(overdue_ns), serve_(std::move(serve)) {
  thread_ = std::thread([this] { poll(); });
}

FlagBinding::~FlagBinding() {
  stop_.store(true);
  thread_.join();
}

void FlagBinding::poll() {
  block_signals();
  name_thread("rs-poller");
  std::atomic<uint32_t> never{0};
  uint64_t quiet_since = now_ns();
  while (!stop_.load(std::memory_order_relaxed)) {
    if (__atomic_load_n(ready_, __ATOMIC_ACQUIRE) != 0) {
      serve_round();
      quiet_since = now_ns();
    } else if (now_ns() - quiet_since < kSpinNs) {
      cpu_relax();
    } else {
      futex_wait(never, 0, kNapNs);
    }
  }
}

void FlagBinding::serve_round() {
  opened_ns_.store(now_ns());
  round_.store(kOpen);
  close_round(serve_());
}

// Reset before done, so that a round that starts at once is not mistaken for this one.
bool FlagBinding::close_round(uint32_t status) {
  uint32_t open = kOpen;
  if (!round_.compare_exchange_strong(open, kIdle)) return false;
  __atomic_store_n(ready_, 0, __ATOMIC_RELAXED);
  __atomic_store_n(done_, 1 + status, __ATOMIC_RELEASE);
  return true;
}

bool FlagBinding::release(uint32_t status) { return close_round(status); }

bool FlagBinding::release_if_overdue(uint64_t now) {
  const uint64_t opened = opened_ns_.load();
  if (round_.load() != kOpen || now < opened + overdue_ns_) return false;
  return close_round(RS_DEADLINE);
}

}  // namespace rs
