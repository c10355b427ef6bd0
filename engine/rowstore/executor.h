// One thread that runs tasks in order: the CPU twin of CUDA's callback thread, and the worker
// behind asynchronous gathers.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "common.h"

namespace rs {

class SerialExecutor {
 public:
  SerialExecutor(uint32_t capacity, const char* name);
  // Drops what has not started; a task that does not end within 2 s is abandoned to its thread.
  ~SerialExecutor();

  // Number of the task, from 1; 0 when `capacity` tasks already wait.
  uint64_t launch(std::function<void()> task);
  // RS_OK when the task has ended, RS_PENDING after the time-out.
  uint32_t wait(uint64_t ticket, uint64_t timeout_ns);

 private:
  struct State;
  static void run(const std::shared_ptr<State>& state, const char* name);
  std::shared_ptr<State> state_;
};

}  // namespace rs
