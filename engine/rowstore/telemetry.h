// Writer of the telemetry page. Relaxed stores into a shared mapping: nothing here waits, so the
// page tells the truth while every other thread is stuck.
#pragma once
#include <string>

#include "common.h"
#include "telemetry_layout.h"

namespace rs {

class Telemetry {
 public:
  // "off" keeps no page and makes every update a no-op.
  Telemetry(const std::string& path, uint32_t rank, uint32_t world);
  ~Telemetry();
  Telemetry(const Telemetry&) = delete;
  Telemetry& operator=(const Telemetry&) = delete;

  bool on() const { return on_; }
  // The page; a private one, never read by anybody, when telemetry is off.
  layout::Page& page() const { return *page_; }

  void count(uint64_t layout::Counters::*field, uint64_t by = 1) {
    if (on_) add_relaxed(page_->counters.*field, by);
  }
  void error(uint32_t error_class) {
    if (on_) add_relaxed(page_->counters.errors[error_class], uint64_t(1));
  }
  void gauge(uint64_t layout::Gauges::*field, uint64_t value) {
    if (on_) store_relaxed(page_->gauges.*field, value);
  }
  void gauge_add(uint64_t layout::Gauges::*field, int64_t by) {
    if (on_) add_relaxed(page_->gauges.*field, uint64_t(by));
  }
  void header(uint32_t layout::Header::*field, uint32_t value) {
    store_relaxed(page_->header.*field, value);
  }
  void observe(uint32_t histogram, uint64_t ns);
  void event(uint32_t code, uint32_t lane, uint64_t arg0, uint64_t arg1);
  void heartbeat(uint64_t now);

  // In-flight table: a free entry, or -1 when none is near; listing is best effort and bounded.
  int list_read(uint64_t page, uint64_t start_ns, uint32_t lane, uint32_t tries, uint32_t source);
  void unlist_read(int entry);

 private:
  void fill_header(uint32_t rank, uint32_t world);

  bool on_ = false;
  layout::Page* page_ = nullptr;
  std::atomic<uint32_t> next_entry_{0};
};

// The lane's record, written by the one thread that holds the lane. Groups of fields are
// bracketed by an odd sequence number; single words may be stored outside the bracket.
class LaneRecord {
 public:
  LaneRecord(Telemetry& telemetry, uint32_t index)
      : on_(telemetry.on()), lane_(telemetry.page().lane[index]) {}

  void enter(uint32_t layer, uint32_t rows, uint64_t now, uint64_t deadline_ns, uint64_t tag);
  void state(uint32_t state, uint64_t now);
  void misses(uint32_t misses);
  void progress(uint32_t pending);
  void exit(uint32_t state, uint32_t error, uint64_t now);

 private:
  void open() {
    store_relaxed(lane_.seq, lane_.seq + 1);
    std::atomic_thread_fence(std::memory_order_release);
  }
  void close() { __atomic_store_n(&lane_.seq, lane_.seq + 1, __ATOMIC_RELEASE); }

  bool on_;
  layout::Lane& lane_;
};

}  // namespace rs
