#include "fill.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "common.h"
#include "inject.h"

namespace rs {
namespace {

constexpr uint64_t kChunk = 8ull << 20;

class FillJob {
 public:
  FillJob(const Table& table, uint8_t* image, const FillOptions& options,
          const std::atomic<bool>& stop, FillProgress& progress)
      : table_(table), image_(image), options_(options), stop_(stop), progress_(progress) {}

  void work() {
    block_signals();
    name_thread("rs-fill");
    const uint64_t total = table_.image_end() - table_.image_from();
    for (;;) {
      const uint64_t at = next_.fetch_add(kChunk);
      if (at >= total || stop_.load() || progress_.bad_chunks.load() > 0) return;
      const uint64_t began = now_ns();
      if (!chunk(at, std::min(kChunk, total - at))) progress_.bad_chunks.fetch_add(1);
      yield_device(now_ns() - began);
    }
  }

 private:
  bool chunk(uint64_t at, uint64_t length) {
    const uint64_t from = table_.image_from() + at;
    const uint64_t aligned = (length + kPage - 1) & ~(kPage - 1);
    const int refused = inject::before_blocking_read(from, never_);
    for (uint64_t done = 0; done < length;) {
      const ssize_t n = refused ? -1
                                : pread(table_.fd(), image_ + at + done, aligned - done,
                                        off_t(from + done));
      if (n < 0 && !refused && errno == EINTR) continue;
      if (n <= 0) {
        progress_.first_error.store(uint32_t(refused ? -refused : n < 0 ? errno : EIO));
        return false;
      }
      done += uint64_t(n);
      progress_.done_bytes.fetch_add(uint64_t(n));
    }
    return table_.image_chunk_ok(image_ + at, from, length & ~(kPage - 1));
  }

  void yield_device(uint64_t read_ns) const {
    if (options_.share_percent >= 100) return;
    uint64_t pause = read_ns * (100 - options_.share_percent) / options_.share_percent;
    while (pause > 0 && !stop_.load()) {
      const uint64_t slice = std::min<uint64_t>(pause, 50 * kMs);
      futex_wait(never_, 0, slice);
      pause -= slice;
    }
  }

  const Table& table_;
  uint8_t* image_;
  FillOptions options_;
  const std::atomic<bool>& stop_;
  FillProgress& progress_;
  std::atomic<uint64_t> next_{0};
  std::atomic<uint32_t> never_{0};
};

}  // namespace

uint32_t fill_image(const Table& table, uint8_t* image, const FillOptions& options,
                    const std::atomic<bool>& stop, FillProgress& progress) {
  FillJob job(table, image, options, stop, progress);
  std::vector<std::thread> threads;
  for (uint32_t k = 0; k < options.threads; ++k) threads.emplace_back([&] { job.work(); });
  for (auto& thread : threads) thread.join();
  if (stop.load()) return RS_RELEASED;
  if (progress.bad_chunks.load() == 0) return RS_OK;
  return progress.first_error.load() ? RS_IO : RS_CORRUPT;
}

}  // namespace rs
