// A lane carries one gather at a time. Rows may be delivered to it by another thread, and its
// request may end (deadline, release) while reads are still out; the protocol below makes both
// safe without a lock:
//
//   deliver: copiers += 1; if active_seq is the wanted one, copy; copiers -= 1
//   end:     active_seq = 0; wait until copiers is 0
//
// All four are sequentially consistent, so either the deliverer sees that the request has ended,
// or the ending lane sees the deliverer and waits for its copy, which makes no system call.
#pragma once
#include <vector>

#include "catalog.h"
#include "driver.h"
#include "telemetry.h"

namespace rs {

struct Output {
  uint8_t* codes = nullptr;
  uint8_t* scales = nullptr;
  uint64_t codes_stride = 0;
  uint64_t scales_stride = 0;

  static Output of(const rs_request& request, const RowFormat& format);
  uint8_t* codes_at(uint32_t i) const { return codes + i * codes_stride; }
  uint8_t* scales_at(uint32_t i) const { return scales + i * scales_stride; }
};

struct RowAt {
  uint32_t row;       // of the store
  uint32_t position;  // in the request
};

// Finds repeated rows of one request; stamped by generation, so it needs no clearing.
class Dedupe {
 public:
  explicit Dedupe(uint32_t rows_max);
  void start(uint32_t rows);
  // Position of the first occurrence; `position` itself when this is it.
  uint32_t first(uint32_t row, uint32_t position);

 private:
  struct Entry {
    uint32_t generation, row, position;
  };
  std::vector<Entry> entries_;
  uint32_t mask_ = 0;
  uint32_t generation_ = 0;
};

class Lane {
 public:
  Lane(uint32_t index, uint32_t rows_max, Telemetry& telemetry);

  const uint32_t index;
  LaneRecord record;

  // Exclusive use; false when another thread is in the lane.
  bool claim();
  void unclaim() { busy_.store(0, std::memory_order_release); }

  // Request scratch, sized at open: a gather allocates nothing.
  Output out;
  std::vector<RowAt> uniques;
  std::vector<RowAt> duplicates;  // row holds the position of the first occurrence
  std::vector<RowAt> misses;
  uint32_t unique_count = 0, duplicate_count = 0, miss_count = 0;
  Dedupe dedupe;
  const uint32_t rows_max;

  // Opens the request for `wanted` deliveries.
  void expect(uint32_t wanted);
  // Closes it; after this no thread writes to the output.
  void end();
  uint64_t seq() const { return seq_; }
  uint32_t pending() const { return pending_.load(std::memory_order_acquire); }
  uint32_t failure() const { return failure_.load(std::memory_order_relaxed); }
  void wait_for_delivery(uint64_t timeout_ns);

  bool alive(uint64_t seq) const { return active_seq_.load(std::memory_order_relaxed) == seq; }
  void deliver(const Want& want, const RowView* row, uint32_t status, const RowFormat& format);

  // Asks the gather inside to return with `status`; sticky until that gather ends.
  void release(uint32_t status);
  const std::atomic<uint32_t>& release_word() const { return release_; }
  void clear_release() { release_.store(0); }

  // Why the request must stop now, or RS_OK.
  uint32_t stop_reason(uint64_t now, uint64_t deadline_ns) const {
    if (const uint32_t released = release_.load(std::memory_order_relaxed)) return released;
    return now >= deadline_ns ? uint32_t(RS_DEADLINE) : uint32_t(RS_OK);
  }

  std::atomic<uint64_t> epoch{0};  // 0: outside the store

 private:
  uint64_t seq_ = 0;
  std::atomic<uint32_t> busy_{0};
  std::atomic<uint64_t> active_seq_{0};
  std::atomic<uint32_t> copiers_{0};
  std::atomic<uint32_t> pending_{0};
  std::atomic<uint32_t> failure_{0};
  std::atomic<uint32_t> release_{0};
};

class LaneSet final : public Sink {
 public:
  LaneSet(uint32_t count, uint32_t rows_max, RowFormat format, Telemetry& telemetry);

  Lane& operator[](uint32_t index) { return *lanes_[index]; }
  uint32_t size() const { return uint32_t(lanes_.size()); }

  bool alive(const Want& want) const override;
  void deliver(const Want& want, const RowView* row, uint32_t status) override;

 private:
  RowFormat format_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace rs
