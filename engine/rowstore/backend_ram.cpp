#include "backend_ram.h"

#include <algorithm>
#include <thread>

#include "keeper_client.h"

namespace rs {
namespace {

constexpr uint32_t kBlock = 512;  // rows whose addresses are translated together
constexpr uint32_t kAhead = 8;    // rows whose cache lines are on their way

void prefetch_row(const RowFormat& format, const RowView& row) {
  for (uint32_t line = 0; line < format.code_bytes; line += 64) __builtin_prefetch(row.codes + line);
  __builtin_prefetch(row.scales);
}

// Loads that nobody waits for: their address translations overlap, those of prefetches hardly do.
// A loop of its own, because a processor looks no further ahead than a few hundred instructions.
void touch(const RowView* rows, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i)
    if (rows[i].codes) (void)*static_cast<const volatile uint8_t*>(rows[i].codes);
}

}  // namespace

RamBackend::RamBackend(const Context& context, uint32_t share_percent,
                       const std::atomic<bool>& stop)
    : context_(context), fill_began_ns_(now_ns()) {
  const bool from_keeper = context.config.keeper != "none";
  const uint64_t total = context.catalog.image_bytes();
  context.telemetry.gauge(&layout::Gauges::prefault_total_bytes, total);
  publish_progress(0);
  const Fit fit = ram_fit(from_keeper ? 0 : total, context.config.reserve_bytes);
  if (!fit.fits) throw Failure(RS_NO_MEMORY, fit.reason);
  fit_reason_ = fit.reason;
  for (const auto& table : context.catalog.tables()) {
    const uint64_t bytes = table->image_end() - table->image_from();
    if (from_keeper) {
      images_.push_back(region_from_keeper(context.config.keeper, *table, stop,
                                           [&](uint64_t done) { publish_progress(done); }));
      if (!images_.back().populate(0, bytes, false))
        throw Failure(RS_NO_MEMORY, "the keeper's pages could not be mapped in");
      lock_reason_ = "locked by the keeper";
    } else {
      images_.push_back(Region::anonymous(bytes, context.config.hugepages));
      fill(*table, images_.back(), stop, share_percent);
    }
    images_.back().dont_fork();
    filled_bytes_ += bytes;
    publish_progress(0);
  }
  context.telemetry.gauge(&layout::Gauges::resident_bytes, total);
}

RamBackend::~RamBackend() { context_.telemetry.gauge(&layout::Gauges::resident_bytes, 0); }

void RamBackend::publish_progress(uint64_t done_bytes) {
  const uint64_t done = filled_bytes_ + done_bytes;
  const uint64_t elapsed_ms = std::max<uint64_t>(1, (now_ns() - fill_began_ns_) / kMs);
  context_.telemetry.gauge(&layout::Gauges::prefault_done_bytes, done);
  context_.telemetry.gauge(&layout::Gauges::prefault_bytes_per_s, done * 1000 / elapsed_ms);
}

void RamBackend::fill(const Table& table, Region& region, const std::atomic<bool>& stop,
                      uint32_t share_percent) {
  // Locked before it is filled, so that every page is faulted in once and stays.
  if (!region.populate(0, region.bytes(), true))
    throw Failure(RS_NO_MEMORY, "memory ran out while faulting the table in");
  locked_ = region.lock(&lock_reason_);
  if (!locked_) throw Failure(RS_NO_MEMORY, lock_reason_);
  FillProgress progress;
  std::atomic<bool> ended{false};
  std::atomic<uint32_t> never{0};
  std::thread reporter([&] {
    block_signals();
    name_thread("rs-progress");
    while (!ended.load()) {
      publish_progress(progress.done_bytes.load());
      futex_wait(never, 0, 20 * kMs);
    }
  });
  const uint32_t status =
      fill_image(table, region.data(), {context_.config.fill_threads, share_percent}, stop,
                 progress);
  ended.store(true);
  reporter.join();
  if (status == RS_OK) return;
  context_.telemetry.gauge(&layout::Gauges::prefault_errors, progress.bad_chunks.load());
  if (status == RS_RELEASED) throw Failure(RS_RELEASED, "stopped while filling");
  const uint32_t error = progress.first_error.load();
  throw Failure(rs_status(status),
                table.path() + ": filling RAM failed: " +
                    (error ? errno_text(int(error)) : "a page check failed") +
                    "; run `rowstore verify` on the file");
}

RowView RamBackend::row(uint32_t store_row) const {
  const RowPlace place = context_.catalog.place(store_row);
  size_t k = 0;
  while (context_.catalog.tables()[k].get() != place.table) ++k;
  return place.table->row_in_image(images_[k].data(), place.local);
}

uint32_t RamBackend::gather(Lane& lane, rs_request& request, uint64_t) {
  const auto& tables = context_.catalog.tables();
  size_t t = 0;
  while (t < tables.size() && tables[t]->layer() != request.layer) ++t;
  if (t == tables.size()) return RS_BAD_ID;
  const Table& table = *tables[t];
  const uint8_t* image = images_[t].data();
  RowView rows[kBlock];  // a null address is padding
  uint32_t present = 0;
  for (uint32_t from = 0; from < request.count; from += kBlock) {
    const uint32_t count = std::min(kBlock, request.count - from);
    for (uint32_t i = 0; i < count; ++i) {
      rows[i] = {nullptr, nullptr};
      const int64_t id = request.ids[from + i];
      if (id < 0) continue;
      const int64_t local = table.ranges().local(id);
      if (local < 0) return RS_BAD_ID;
      rows[i] = table.row_in_image(image, uint64_t(local));
    }
    touch(rows, count);
    // Row i is copied while the lines of the rows after it are on their way.
    for (uint32_t i = 0; i < count + kAhead; ++i) {
      if (i < count && rows[i].codes) prefetch_row(table.format(), rows[i]);
      if (i < kAhead) continue;
      const RowView& row = rows[i - kAhead];
      if (row.codes) copy_row(table.format(), lane.out, from + i - kAhead, row);
      else zero_row(context_, lane, from + i - kAhead);
      present += row.codes != nullptr;
    }
  }
  request.hits = request.unique = present;
  return RS_OK;
}

std::string RamBackend::describe() const {
  return "\"ram\":{\"fit\":" + json_string(fit_reason_) +
         ",\"lock\":" + json_string(lock_reason_) +
         ",\"memory\":" + json_string(images_.front().kind()) + "}";
}

}  // namespace rs
