// Set-associative row cache: 16 ways, lock-free readers, writers that never wait.
//
// A reader validates the set's version around its copy; a writer takes the set with a try-lock
// and skips the insertion when another writer has it. Both sides touch shared words with relaxed
// atomics only, so the race detector can check the protocol.
#pragma once
#include <memory>
#include <vector>

#include "memory.h"
#include "table.h"
#include "telemetry.h"

namespace rs {

enum class CachePolicy : uint32_t { kNone, kS3, kClock3, kDirect };  // layout::POLICY_*

inline const char* policy_name(CachePolicy policy) {
  static const char* const names[] = {"none", "s3", "clk3", "direct"};
  return names[uint32_t(policy)];
}

struct alignas(128) CacheSet {
  static constexpr uint32_t kWays = 16;
  static constexpr uint32_t kGhosts = 14;
  uint32_t tag[kWays];  // row number + 1; 0 is empty
  uint8_t freq[kWays];  // 0..3, and kPrefetched
  uint16_t ghost[kGhosts];
  uint8_t ghost_hand, small_hand, main_hand, clock_hand;
  uint32_t version;  // odd while a writer is inside
  uint32_t writer;   // 1 while taken
  uint8_t unused[8];
};
static_assert(sizeof(CacheSet) == 128);

class Cache {
 public:
  Cache(uint64_t bytes, CachePolicy policy, RowFormat format, const std::string& hugepages,
        Telemetry& telemetry);

  CachePolicy policy() const { return policy_; }
  uint64_t capacity_rows() const { return uint64_t(sets_) * CacheSet::kWays; }
  uint64_t bytes() const { return rows_.bytes() + set_memory_.bytes(); }
  const std::string& memory_kind() const { return rows_.kind(); }

  // Faults the row array in, in steps, until done or *stop. Rows that are not faulted in yet
  // are not used, so no gather ever takes a page fault here.
  void prefault(const std::atomic<bool>& stop);

  void prefetch_set(uint32_t row) const { __builtin_prefetch(&set_of(row)); }
  void prefetch_row(uint32_t row) const;
  // Copies the row out and returns true on a hit.
  bool get(uint32_t row, uint8_t* codes, uint8_t* scales);
  void put(uint32_t row, RowView view, bool prefetched);
  bool holds(uint32_t row) const;
  std::vector<uint32_t> resident_rows() const;

 private:
  static constexpr uint8_t kPrefetched = 0x80;
  static constexpr int kReaderTries = 3;

  CacheSet& set_of(uint32_t row) const {
    const uint64_t hash = mix64(row + 0x9e3779b97f4a7c15ull);
    return set_array_[(hash >> 32) * sets_ >> 32];
  }
  uint64_t* slot(const CacheSet& set, uint32_t way) const {
    const uint64_t index = uint64_t(&set - set_array_) * CacheSet::kWays + way;
    return reinterpret_cast<uint64_t*>(rows_.data()) + index * words_;
  }
  void copy_out(const CacheSet& set, uint32_t way, uint8_t* codes, uint8_t* scales) const;
  void note_hit(CacheSet& set, uint32_t way);
  void fill_way(CacheSet& set, uint32_t way, uint32_t row, RowView view, uint8_t freq);
  void move_way(CacheSet& set, uint32_t from, uint32_t to);

  RowFormat format_;
  CachePolicy policy_;
  uint32_t sets_ = 0;
  uint32_t words_ = 0;
  Region set_memory_, rows_;
  CacheSet* set_array_ = nullptr;
  std::atomic<uint64_t> ready_bytes_{0};
  Telemetry& telemetry_;
};

}  // namespace rs
