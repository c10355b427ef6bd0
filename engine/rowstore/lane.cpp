#include "lane.h"

#include <string.h>

namespace rs {

Output Output::of(const rs_request& request, const RowFormat& format) {
  Output out;
  out.codes = static_cast<uint8_t*>(request.codes);
  if (request.scales) {
    out.scales = static_cast<uint8_t*>(request.scales);
    out.codes_stride = request.codes_stride ? request.codes_stride : format.code_bytes;
    out.scales_stride = request.scales_stride ? request.scales_stride : format.scale_bytes;
    return out;
  }
  out.codes_stride = request.codes_stride ? request.codes_stride : format.row_bytes();
  out.scales = out.codes + format.code_bytes;
  out.scales_stride = out.codes_stride;
  return out;
}

Dedupe::Dedupe(uint32_t rows_max) {
  uint32_t size = 16;
  while (size < rows_max * 2) size *= 2;
  entries_.resize(size);
}

void Dedupe::start(uint32_t rows) {
  uint32_t size = 16;
  while (size < rows * 2) size *= 2;  // a small request stays in the first cache lines
  mask_ = size - 1;
  if (++generation_ == 0) {
    std::fill(entries_.begin(), entries_.end(), Entry{});
    generation_ = 1;
  }
}

uint32_t Dedupe::first(uint32_t row, uint32_t position) {
  for (uint32_t at = uint32_t(row * 0x9e3779b1u >> 7) & mask_;; at = (at + 1) & mask_) {
    Entry& entry = entries_[at];
    if (entry.generation != generation_) {
      entry = {generation_, row, position};
      return position;
    }
    if (entry.row == row) return entry.position;
  }
}

Lane::Lane(uint32_t lane_index, uint32_t most, Telemetry& telemetry)
    : index(lane_index),
      record(telemetry, lane_index),
      uniques(most),
      duplicates(most),
      misses(most),
      dedupe(most),
      rows_max(most) {}

bool Lane::claim() {
  uint32_t free = 0;
  return busy_.compare_exchange_strong(free, 1, std::memory_order_acquire);
}

void Lane::expect(uint32_t wanted) {
  ++seq_;
  pending_.store(wanted, std::memory_order_relaxed);
  failure_.store(0, std::memory_order_relaxed);
  active_seq_.store(seq_);
}

void Lane::end() {
  active_seq_.store(0);
  while (copiers_.load() != 0) cpu_relax();
}

void Lane::wait_for_delivery(uint64_t timeout_ns) {
  const uint32_t seen = pending();
  if (seen != 0) futex_wait(pending_, seen, timeout_ns);
}

void Lane::deliver(const Want& want, const RowView* row, uint32_t status,
                   const RowFormat& format) {
  copiers_.fetch_add(1);
  if (active_seq_.load() == want.seq) {
    if (row) {
      memcpy(out.codes_at(want.position), row->codes, format.code_bytes);
      memcpy(out.scales_at(want.position), row->scales, format.scale_bytes);
    } else {
      failure_.store(status, std::memory_order_relaxed);
    }
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) futex_wake_all(pending_);
  }
  copiers_.fetch_sub(1);
}

void Lane::release(uint32_t status) {
  release_.store(status);
  futex_wake_all(release_);
  futex_wake_all(pending_);
}

LaneSet::LaneSet(uint32_t count, uint32_t rows_max, RowFormat format, Telemetry& telemetry)
    : format_(format) {
  for (uint32_t k = 0; k < count; ++k)
    lanes_.push_back(std::make_unique<Lane>(k, rows_max, telemetry));
}

bool LaneSet::alive(const Want& want) const {
  return want.lane == kNoLane || lanes_[want.lane]->alive(want.seq);
}

void LaneSet::deliver(const Want& want, const RowView* row, uint32_t status) {
  if (want.lane != kNoLane) lanes_[want.lane]->deliver(want, row, status, format_);
}

}  // namespace rs
