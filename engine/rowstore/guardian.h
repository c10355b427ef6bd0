// The store's own 10 Hz thread. It takes no lock that a lane could hold, so its heartbeat stops
// only when the process itself is frozen.
#pragma once
#include <functional>
#include <thread>

#include "telemetry.h"

namespace rs {

class Guardian {
 public:
  Guardian(Telemetry& telemetry, uint32_t lanes, uint64_t warn_ns,
           std::function<void(uint64_t now)> on_tick);
  ~Guardian();

 private:
  void run();
  void find_oldest_read();
  void warn_about_lanes(uint64_t now);

  Telemetry& telemetry_;
  const uint32_t lanes_;
  const uint64_t warn_ns_;
  const std::function<void(uint64_t)> on_tick_;
  uint64_t warned_enter_[kLanesMax]{};  // the gather of each lane that was last warned about
  std::atomic<uint32_t> stop_{0};
  std::thread thread_;
};

}  // namespace rs
