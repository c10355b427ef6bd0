#include "executor.h"

#include <thread>

namespace rs {

struct SerialExecutor::State {
  std::mutex mutex;  // guards the queue; not held while a task runs
  std::condition_variable work, progress;
  std::deque<std::function<void()>> tasks;
  uint32_t capacity = 0;
  uint64_t launched = 0, completed = 0;
  bool stop = false, ended = false;
};

SerialExecutor::SerialExecutor(uint32_t capacity, const char* name)
    : state_(std::make_shared<State>()) {
  state_->capacity = capacity;
  std::thread([state = state_, name] { run(state, name); }).detach();
}

SerialExecutor::~SerialExecutor() {
  std::unique_lock<std::mutex> lock(state_->mutex);
  state_->stop = true;
  state_->work.notify_all();
  state_->progress.wait_for(lock, std::chrono::seconds(2), [&] { return state_->ended; });
}

uint64_t SerialExecutor::launch(std::function<void()> task) {
  const std::lock_guard<std::mutex> guard(state_->mutex);
  if (state_->tasks.size() >= state_->capacity) return 0;
  state_->tasks.push_back(std::move(task));
  state_->work.notify_one();
  return ++state_->launched;
}

uint32_t SerialExecutor::wait(uint64_t ticket, uint64_t timeout_ns) {
  std::unique_lock<std::mutex> lock(state_->mutex);
  const bool done = state_->progress.wait_for(lock, std::chrono::nanoseconds(timeout_ns),
                                              [&] { return state_->completed >= ticket; });
  return done ? RS_OK : RS_PENDING;
}

void SerialExecutor::run(const std::shared_ptr<State>& state, const char* name) {
  block_signals();
  name_thread(name);
  std::unique_lock<std::mutex> lock(state->mutex);
  for (;;) {
    state->work.wait(lock, [&] { return state->stop || !state->tasks.empty(); });
    if (state->stop) break;
    const std::function<void()> task = std::move(state->tasks.front());
    state->tasks.pop_front();
    lock.unlock();
    task();
    lock.lock();
    ++state->completed;
    state->progress.notify_all();
  }
  state->ended = true;
  state->progress.notify_all();
}

}  // namespace rs
