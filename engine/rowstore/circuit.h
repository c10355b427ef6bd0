// Opens after repeated hard deadlines; while open, gathers that need the device get a short
// deadline, so that a dead drive costs each step little. A gather that reads in time closes it.
#pragma once
#include "telemetry.h"

namespace rs {

class Circuit {
 public:
  Circuit(uint32_t trip_count, uint64_t window_ns, Telemetry& telemetry)
      : trip_count_(trip_count), window_ns_(window_ns), telemetry_(telemetry) {}

  bool open() const { return open_.load(std::memory_order_relaxed); }

  void note_hard(uint64_t now) {
    const uint64_t started = window_start_ns_.load(std::memory_order_relaxed);
    if (started == 0 || now - started > window_ns_) {
      window_start_ns_.store(now, std::memory_order_relaxed);
      hard_in_window_.store(0, std::memory_order_relaxed);
    }
    if (hard_in_window_.fetch_add(1, std::memory_order_relaxed) + 1 >= trip_count_) trip();
  }

  void trip() {
    if (open_.exchange(true)) return;
    telemetry_.header(&layout::Header::circuit, layout::CIRCUIT_OPEN);
    telemetry_.event(layout::EVENT_CIRCUIT_OPEN, kNoLane, hard_in_window_.load(), 0);
  }

  void note_read_in_time() {
    if (!open() || !open_.exchange(false)) return;
    window_start_ns_.store(0, std::memory_order_relaxed);
    telemetry_.header(&layout::Header::circuit, layout::CIRCUIT_CLOSED);
    telemetry_.event(layout::EVENT_CIRCUIT_CLOSED, kNoLane, 0, 0);
  }

 private:
  const uint32_t trip_count_;
  const uint64_t window_ns_;
  Telemetry& telemetry_;
  std::atomic<bool> open_{false};
  std::atomic<uint64_t> window_start_ns_{0};
  std::atomic<uint32_t> hard_in_window_{0};
};

}  // namespace rs
