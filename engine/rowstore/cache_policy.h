// Which way a new row takes. Pure functions over one set; the caller holds the set's try-lock.
#pragma once
#include "cache.h"

namespace rs::policy {

constexpr uint32_t kSmallWays = 2;  // ways 0 and 1 are the probation queue of s3
constexpr uint8_t kFreqMask = 0x03;

struct Placement {
  uint32_t way;         // where the new row goes; what was there is evicted
  int promote_to = -1;  // first move `way` there: it was hit while on probation
  bool ghost_hit = false;
};

// CLOCK: halve what the hand passes until something is cold.
inline uint32_t clock_victim(CacheSet& set, uint8_t& hand, uint32_t first, uint32_t count) {
  for (uint32_t step = 0; step < count * 4; ++step) {
    const uint32_t way = first + hand % count;
    hand = uint8_t((hand + 1) % count);
    if (load_relaxed(set.tag[way]) == 0) return way;
    const uint8_t freq = load_relaxed(set.freq[way]);
    if ((freq & kFreqMask) == 0) return way;
    store_relaxed(set.freq[way], uint8_t(freq - 1));
  }
  return first + hand % count;
}

inline uint16_t fingerprint(uint32_t tag) { return uint16_t(mix64(tag) >> 48) | 1; }

inline bool take_ghost(CacheSet& set, uint32_t tag) {
  const uint16_t wanted = fingerprint(tag);
  for (uint16_t& ghost : set.ghost) {
    if (ghost != wanted) continue;
    ghost = 0;
    return true;
  }
  return false;
}

inline void remember_ghost(CacheSet& set, uint32_t tag) {
  set.ghost[set.ghost_hand] = fingerprint(tag);
  set.ghost_hand = uint8_t((set.ghost_hand + 1) % CacheSet::kGhosts);
}

inline int empty_way(const CacheSet& set) {
  for (uint32_t way = CacheSet::kWays; way-- > 0;)
    if (load_relaxed(set.tag[way]) == 0) return int(way);
  return -1;
}

// S3-FIFO inside a set: newcomers stay on probation unless their ghost is remembered. While the
// set is not full there is nothing to protect, so they go where there is room.
inline Placement place_s3(CacheSet& set, uint32_t tag) {
  constexpr uint32_t kMainWays = CacheSet::kWays - kSmallWays;
  if (const int empty = empty_way(set); empty >= 0) return {uint32_t(empty)};
  if (take_ghost(set, tag))
    return {clock_victim(set, set.main_hand, kSmallWays, kMainWays), -1, true};
  const uint32_t way = set.small_hand;
  set.small_hand = uint8_t((way + 1) % kSmallWays);
  const uint32_t old_tag = load_relaxed(set.tag[way]);
  if (load_relaxed(set.freq[way]) & kFreqMask)
    return {way, int(clock_victim(set, set.main_hand, kSmallWays, kMainWays))};
  remember_ghost(set, old_tag);
  return {way};
}

inline Placement place(CachePolicy policy, CacheSet& set, uint32_t tag) {
  switch (policy) {
    case CachePolicy::kS3:
      return place_s3(set, tag);
    case CachePolicy::kClock3:
      return {clock_victim(set, set.clock_hand, 0, CacheSet::kWays)};
    default:
      return {uint32_t(mix64(tag) % CacheSet::kWays)};
  }
}

}  // namespace rs::policy
