#include "cache.h"

#include <string.h>

#include <algorithm>

#include "cache_policy.h"

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#include <emmintrin.h>
#define RS_SIMD_TAGS 1
#endif

namespace rs {
namespace {

constexpr uint64_t kPrefaultStep = 64ull << 20;

// Way that holds the tag, or -1. What it finds is only a hint until the version is re-checked.
int find_way(const CacheSet& set, uint32_t tag) {
#if defined(RS_SIMD_TAGS)
  const __m128i wanted = _mm_set1_epi32(int(tag));
  const auto* tags = reinterpret_cast<const __m128i*>(set.tag);
  int mask = 0;
  for (int quarter = 0; quarter < 4; ++quarter) {
    const __m128i equal = _mm_cmpeq_epi32(_mm_load_si128(tags + quarter), wanted);
    mask |= _mm_movemask_ps(_mm_castsi128_ps(equal)) << (quarter * 4);
  }
  return mask ? __builtin_ctz(unsigned(mask)) : -1;
#else
  for (uint32_t way = 0; way < CacheSet::kWays; ++way)
    if (load_relaxed(set.tag[way]) == tag) return int(way);
  return -1;
#endif
}

}  // namespace

Cache::Cache(uint64_t bytes, CachePolicy policy, RowFormat format, const std::string& hugepages,
             Telemetry& telemetry)
    : format_(format), policy_(policy), words_(format.row_bytes() / 8), telemetry_(telemetry) {
  const uint64_t per_set = sizeof(CacheSet) + uint64_t(CacheSet::kWays) * format.row_bytes();
  sets_ = uint32_t(std::clamp<uint64_t>(bytes / per_set, 1, UINT32_MAX));
  set_memory_ = Region::anonymous(uint64_t(sets_) * sizeof(CacheSet), hugepages);
  rows_ = Region::anonymous(capacity_rows() * format.row_bytes(), hugepages);
  set_array_ = reinterpret_cast<CacheSet*>(set_memory_.data());
  if (!set_memory_.populate(0, set_memory_.bytes(), true))
    throw Failure(RS_NO_MEMORY, "no memory for the cache's sets; lower cache_bytes");
}

void Cache::prefault(const std::atomic<bool>& stop) {
  for (uint64_t at = 0; at < rows_.bytes() && !stop.load(); at += kPrefaultStep) {
    if (!rows_.populate(at, kPrefaultStep, true)) return;
    ready_bytes_.store(std::min(rows_.bytes(), at + kPrefaultStep), std::memory_order_release);
  }
}

void Cache::prefetch_row(uint32_t row) const {
  const CacheSet& set = set_of(row);
  const int way = find_way(set, row + 1);
  if (way < 0) return;
  const auto* at = reinterpret_cast<const uint8_t*>(slot(set, uint32_t(way)));
  for (uint32_t line = 0; line < format_.row_bytes(); line += 64) __builtin_prefetch(at + line);
}

bool Cache::holds(uint32_t row) const { return find_way(set_of(row), row + 1) >= 0; }

void Cache::copy_out(const CacheSet& set, uint32_t way, uint8_t* codes, uint8_t* scales) const {
  const uint64_t* from = slot(set, way);
  const uint32_t code_words = format_.code_bytes / 8;
  for (uint32_t w = 0; w < words_; ++w) {
    const uint64_t value = load_relaxed(from[w]);
    memcpy(w < code_words ? codes + w * 8 : scales + (w - code_words) * 8, &value, 8);
  }
}

void Cache::note_hit(CacheSet& set, uint32_t way) {
  const uint8_t freq = load_relaxed(set.freq[way]);
  const uint8_t hits = freq & policy::kFreqMask;
  if (freq & kPrefetched) telemetry_.count(&layout::Counters::prefetch_useful);
  if (freq & kPrefetched || hits < 3)
    store_relaxed(set.freq[way], uint8_t(std::min(hits + 1, 3)));
}

bool Cache::get(uint32_t row, uint8_t* codes, uint8_t* scales) {
  CacheSet& set = set_of(row);
  for (int attempt = 0; attempt < kReaderTries; ++attempt) {
    const uint32_t before = __atomic_load_n(&set.version, __ATOMIC_ACQUIRE);
    if (before & 1) {
      telemetry_.count(&layout::Counters::seqlock_retries);
      cpu_relax();
      continue;
    }
    const int way = find_way(set, row + 1);
    if (way >= 0) copy_out(set, uint32_t(way), codes, scales);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (load_relaxed(set.version) == before) {
      if (way >= 0) note_hit(set, uint32_t(way));
      return way >= 0;
    }
    telemetry_.count(&layout::Counters::seqlock_retries);
  }
  return false;  // a busy set is a miss: reading the row again is exact, waiting is not bounded
}

void Cache::fill_way(CacheSet& set, uint32_t way, uint32_t row, RowView view, uint8_t freq) {
  uint64_t* to = slot(set, way);
  const uint32_t code_words = format_.code_bytes / 8;
  for (uint32_t w = 0; w < words_; ++w) {
    uint64_t value;
    memcpy(&value, w < code_words ? view.codes + w * 8 : view.scales + (w - code_words) * 8, 8);
    store_relaxed(to[w], value);
  }
  store_relaxed(set.tag[way], row + 1);
  store_relaxed(set.freq[way], freq);
}

void Cache::move_way(CacheSet& set, uint32_t from, uint32_t to) {
  const uint64_t* source = slot(set, from);
  uint64_t* target = slot(set, to);
  for (uint32_t w = 0; w < words_; ++w) store_relaxed(target[w], load_relaxed(source[w]));
  store_relaxed(set.tag[to], load_relaxed(set.tag[from]));
  store_relaxed(set.freq[to], uint8_t(0));
}

void Cache::put(uint32_t row, RowView view, bool prefetched) {
  CacheSet& set = set_of(row);
  const auto* last_byte = reinterpret_cast<uint8_t*>(slot(set, CacheSet::kWays));
  uint32_t free = 0;
  if (uint64_t(last_byte - rows_.data()) > ready_bytes_.load(std::memory_order_acquire) ||
      !__atomic_compare_exchange_n(&set.writer, &free, 1, false, __ATOMIC_ACQUIRE,
                                   __ATOMIC_RELAXED)) {
    telemetry_.count(&layout::Counters::insert_skips);
    return;
  }
  if (find_way(set, row + 1) >= 0) {
    if (prefetched) telemetry_.count(&layout::Counters::prefetch_late);
    __atomic_store_n(&set.writer, 0, __ATOMIC_RELEASE);
    return;
  }
  const policy::Placement where = policy::place(policy_, set, row + 1);
  const uint32_t lost = where.promote_to >= 0 ? uint32_t(where.promote_to) : where.way;
  const bool evicts = load_relaxed(set.tag[lost]) != 0;

  store_relaxed(set.version, set.version + 1);
  std::atomic_thread_fence(std::memory_order_release);
  if (where.promote_to >= 0) move_way(set, where.way, uint32_t(where.promote_to));
  fill_way(set, where.way, row, view, prefetched ? kPrefetched : 0);
  __atomic_store_n(&set.version, set.version + 1, __ATOMIC_RELEASE);
  __atomic_store_n(&set.writer, 0, __ATOMIC_RELEASE);

  if (where.ghost_hit) telemetry_.count(&layout::Counters::ghost_hits);
  if (evicts) telemetry_.count(&layout::Counters::evictions);
  else telemetry_.gauge_add(&layout::Gauges::cache_rows_used, 1);
}

std::vector<uint32_t> Cache::resident_rows() const {
  std::vector<uint32_t> rows;
  for (uint32_t s = 0; s < sets_; ++s)
    for (uint32_t way = 0; way < CacheSet::kWays; ++way)
      if (const uint32_t tag = load_relaxed(set_array_[s].tag[way])) rows.push_back(tag - 1);
  return rows;
}

}  // namespace rs
