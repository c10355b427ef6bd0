#include <errno.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "common.h"
#include "io_engine.h"
#include "telemetry_layout.h"

namespace rs {
namespace {

// Shared with the workers so that one stuck in the kernel may outlive the engine.
struct PoolState {
  std::mutex mutex;  // guards the two queues; never held across a system call that reads
  std::condition_variable work;
  std::condition_variable done;
  std::deque<Read> queue;
  std::deque<Completion> finished;
  uint32_t workers = 0;
  bool stop = false;
};

void work_until_stopped(const std::shared_ptr<PoolState>& state) {
  block_signals();
  name_thread("rs-pool");
  std::unique_lock<std::mutex> lock(state->mutex);
  for (;;) {
    state->work.wait(lock, [&] { return state->stop || !state->queue.empty(); });
    if (state->stop) break;
    const Read read = state->queue.front();
    state->queue.pop_front();
    lock.unlock();
    ssize_t n;
    do {
      n = pread(read.fd, read.buffer, read.length, off_t(read.offset));
    } while (n < 0 && errno == EINTR);
    const int32_t result = int32_t(n < 0 ? -errno : n);
    lock.lock();
    state->finished.push_back({read.id, result});
    state->done.notify_one();
  }
  --state->workers;
  state->done.notify_all();
}

class PoolEngine final : public IoEngine {
 public:
  PoolEngine(uint32_t entries, uint32_t threads)
      : entries_(entries), state_(std::make_shared<PoolState>()) {
    state_->workers = threads;
    for (uint32_t k = 0; k < threads; ++k)
      std::thread([state = state_] { work_until_stopped(state); }).detach();
  }

  ~PoolEngine() override {
    std::unique_lock<std::mutex> lock(state_->mutex);
    state_->stop = true;
    state_->work.notify_all();
    // A worker inside a dead device never comes back: do not wait for it for ever.
    state_->done.wait_for(lock, std::chrono::seconds(2), [&] { return state_->workers == 0; });
  }

  const char* name() const override { return "pool"; }
  uint32_t kind() const override { return layout::ENGINE_POOL; }
  void register_buffers(uint8_t*, uint64_t) override {}

  bool submit(const Read& read) override {
    if (outstanding_ >= entries_) return false;
    ++outstanding_;
    const std::lock_guard<std::mutex> guard(state_->mutex);
    state_->queue.push_back(read);
    state_->work.notify_one();
    return true;
  }

  int reap(Completion* out, int max, uint64_t timeout_ns) override {
    std::unique_lock<std::mutex> lock(state_->mutex);
    if (state_->finished.empty() && timeout_ns > 0)
      state_->done.wait_for(lock, std::chrono::nanoseconds(timeout_ns));
    int got = 0;
    for (; got < max && !state_->finished.empty(); ++got) {
      out[got] = state_->finished.front();
      state_->finished.pop_front();
    }
    outstanding_ -= uint32_t(got);
    return got;
  }

 private:
  uint32_t entries_;
  uint32_t outstanding_ = 0;
  std::shared_ptr<PoolState> state_;
};

}  // namespace

std::unique_ptr<IoEngine> make_pool(uint32_t entries, uint32_t threads) {
  return std::make_unique<PoolEngine>(entries, threads);
}

}  // namespace rs
