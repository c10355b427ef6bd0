// Memory-operation handoff: the GPU writes *ready, a poller serves the node and writes *done.
// *done is written exactly once per round: by the poller, or by whoever finds it overdue.
#pragma once
#include <functional>
#include <thread>

#include "common.h"

namespace rs {

class FlagBinding {
 public:
  // serve() runs the gather and returns its status.
  FlagBinding(uint32_t lane, uint32_t* ready, uint32_t* done, uint64_t overdue_ns,
              std::function<uint32_t()> serve);
  ~FlagBinding();

  uint32_t lane() const { return lane_; }
  // Ends the round that is open, if one is, with 1 + status. True when this call ended it.
  bool release(uint32_t status);
  // The last resort: ends a round that has been open longer than its deadline and half a second.
  bool release_if_overdue(uint64_t now);

 private:
  enum Round : uint32_t { kIdle, kOpen };
  void poll();
  void serve_round();
  bool close_round(uint32_t status);

  const uint32_t lane_;
  uint32_t* const ready_;
  uint32_t* const done_;
  const uint64_t overdue_ns_;
  const std::function<uint32_t()> serve_;
  std::atomic<uint32_t> round_{kIdle};
  std::atomic<uint64_t> opened_ns_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace rs
