#include "backend_legacy.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "inject.h"

namespace rs {

LegacyBackend::LegacyBackend(const Context& context)
    : context_(context), mutexes_(new std::mutex[kShards]) {
  const uint32_t row_bytes = context.catalog.format().row_bytes();
  slots_ = context.config.cache_bytes / (row_bytes + sizeof(uint32_t));
  tags_.resize(slots_);
  rows_.resize(slots_ * row_bytes);
  context_.telemetry.header(&layout::Header::engine, layout::ENGINE_INLINE);
}

uint32_t LegacyBackend::gather(Lane& lane, rs_request& request, uint64_t) {
  uint32_t base = 0;
  const Table* table = context_.catalog.of_layer(request.layer, &base);
  if (!table) return RS_BAD_ID;
  lane.record.misses(request.count);
  for (uint32_t i = 0; i < request.count; ++i) {
    if (request.ids[i] < 0) {
      zero_row(context_, lane, i);
      continue;
    }
    const int64_t local = table->ranges().local(request.ids[i]);
    if (local < 0) return RS_BAD_ID;
    const uint32_t status = row(lane, base + uint32_t(local), i, request);
    if (status != RS_OK) return status;
    lane.record.progress(request.count - i - 1);
  }
  request.unique = request.count;
  return RS_OK;
}

void LegacyBackend::lock(Lane& lane, uint32_t shard) {
  layout::Shard& s = context_.telemetry.page().shard[shard];
  const uint64_t began = now_ns();
  if (!mutexes_[shard].try_lock()) {
    lane.record.state(layout::LANE_WAIT_LOCK, began);
    add_relaxed(s.waiters, 1u);
    add_relaxed(s.contended, uint64_t(1));
    mutexes_[shard].lock();
    add_relaxed(s.waiters, -1u);
  }
  const uint64_t now = now_ns();
  context_.telemetry.observe(layout::HISTOGRAM_LOCK_WAIT, now - began);
  store_relaxed(s.holder_tid, thread_id());
  store_relaxed(s.acquire_ns, now);
  add_relaxed(s.acquisitions, uint64_t(1));
}

void LegacyBackend::unlock(uint32_t shard) {
  layout::Shard& s = context_.telemetry.page().shard[shard];
  const uint64_t held = now_ns() - load_relaxed(s.acquire_ns);
  if (held > load_relaxed(s.max_hold_ns)) store_relaxed(s.max_hold_ns, held);
  store_relaxed(s.acquire_ns, uint64_t(0));
  store_relaxed(s.holder_tid, 0u);
  mutexes_[shard].unlock();
}

uint32_t LegacyBackend::row(Lane& lane, uint32_t store_row, uint32_t position,
                            rs_request& request) {
  const RowFormat& format = context_.catalog.format();
  const RowPlace place = context_.catalog.place(store_row);
  const uint64_t slot = slots_ ? store_row % slots_ : 0;
  const uint32_t shard = uint32_t(slot % kShards);
  alignas(4096) uint8_t buffer[2 * 4096];
  lock(lane, shard);
  uint8_t* cached = slots_ ? rows_.data() + slot * format.row_bytes() : nullptr;
  uint32_t status = RS_OK;
  if (cached && tags_[slot] == store_row + 1) {
    ++request.hits;
    copy_row(format, lane.out, position, {cached, cached + format.code_bytes});
  } else {
    ++request.misses;
    status = read_under_lock(lane, store_row, buffer);
    if (status == RS_OK) {
      const RowView view = place.table->row_in_buffer(buffer, place.local);
      copy_row(format, lane.out, position, view);
      if (cached) {
        memcpy(cached, view.codes, format.code_bytes);
        memcpy(cached + format.code_bytes, view.scales, format.scale_bytes);
        tags_[slot] = store_row + 1;
      }
    }
  }
  unlock(shard);
  return status;
}

// Codes, then scales: two reads, as when they lie in two tensors.
uint32_t LegacyBackend::read_under_lock(Lane& lane, uint32_t store_row, uint8_t* buffer) {
  const RowPlace place = context_.catalog.place(store_row);
  const uint64_t page = place.table->page_of(place.local);
  const uint64_t offset = place.table->read_offset(page);
  Telemetry& telemetry = context_.telemetry;
  lane.record.state(layout::LANE_WAIT_IO, now_ns());
  for (int part = 0; part < 2; ++part) {
    if (const uint32_t released = lane.stop_reason(0, UINT64_MAX)) return released;
    const uint64_t began = now_ns();
    const int listed = telemetry.list_read(context_.catalog.page_of(store_row), began, lane.index,
                                           0, 0);
    telemetry.count(&layout::Counters::reads_issued);
    telemetry.gauge_add(&layout::Gauges::inflight_reads, 1);
    const int refused = inject::before_blocking_read(offset, lane.release_word());
    const ssize_t n = refused ? -1
                              : pread(place.table->fd(), buffer, place.table->read_bytes(),
                                      off_t(offset));
    telemetry.gauge_add(&layout::Gauges::inflight_reads, -1);
    telemetry.unlist_read(listed);
    telemetry.count(&layout::Counters::reads_completed);
    telemetry.observe(layout::HISTOGRAM_DEVICE_READ, now_ns() - began);
    if (n < ssize_t(place.table->expected_bytes(page))) {
      telemetry.error(n < 0 ? layout::ERROR_IO : layout::ERROR_SHORT_READ);
      return RS_IO;
    }
  }
  return RS_OK;
}

std::string LegacyBackend::describe() const {
  return "\"legacy\":{\"locks\":" + std::to_string(kShards) +
         ",\"cache_slots\":" + std::to_string(slots_) + "}";
}

}  // namespace rs
