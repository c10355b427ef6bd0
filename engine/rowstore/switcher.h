// Owns the backends and replaces one by another under load.
//
// A gather enters an epoch, reads the backend pointer once and leaves. A switch publishes the new
// pointer, then waits until no lane is in an older epoch; only then may the old backend go, and
// it is kept for a grace period so that switching back is instant.
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "backend.h"
#include "circuit.h"

namespace rs {

class Switcher {
 public:
  Switcher(const Context& context, Circuit& circuit);
  ~Switcher();

  // Builds the first backend; throws Failure.
  void open();

  // Bracket of a gather.
  Backend* enter(Lane& lane) {
    lane.epoch.store(epoch_.load());
    return current_.load();
  }
  void leave(Lane& lane) { lane.epoch.store(0, std::memory_order_release); }

  // RS_OK: under way or already there. RS_BUSY: another switch is running.
  uint32_t request(const std::string& target);
  void poll(rs_mode_ticket* ticket);
  void hint(const uint32_t* rows, uint32_t count);
  std::string describe();

 private:
  struct Retired {
    std::unique_ptr<Backend> backend;
    uint64_t epoch;    // lanes in older epochs may still use it
    uint64_t until_ns;
  };

  std::unique_ptr<Backend> build(uint32_t mode);
  std::unique_ptr<Backend> take_retired(uint32_t mode);
  void run();
  void perform(uint32_t target);
  void publish(std::unique_ptr<Backend> next);
  void finish(uint32_t status, const std::string& reason);
  bool quiescent(uint64_t epoch) const;
  void retire_due();
  void let_go(std::unique_ptr<Backend> backend);
  void state(uint32_t mode_state);

  Context context_;
  Circuit& circuit_;
  std::atomic<Backend*> current_{nullptr};
  std::atomic<uint64_t> epoch_{1};
  std::unique_ptr<Backend> serving_;  // what current_ points to
  std::vector<Retired> retired_;
  std::vector<uint32_t> warm_rows_;   // of the last cache that was let go

  std::mutex mutex_;                  // guards what follows; never held while building
  std::condition_variable wake_;
  uint32_t wanted_ = 0;
  bool running_ = false, stop_ = false;
  rs_mode_ticket ticket_{};
  uint64_t began_ns_ = 0;
  std::mutex hint_mutex_;             // a hint in progress keeps its backend alive
  std::atomic<bool> abort_{false};
  std::thread thread_;
};

}  // namespace rs
