#include "backend_nvme.h"

#include <algorithm>

namespace rs {
namespace {

constexpr uint64_t kSpinNs = 20'000;
constexpr uint64_t kSliceNs = 50 * kMs;
constexpr uint64_t kInlineSliceNs = 2 * kMs;
constexpr uint32_t kBlock = 128;  // rows whose cache lines are fetched ahead together

CachePolicy policy_named(const std::string& name) {
  if (name == "s3") return CachePolicy::kS3;
  if (name == "clk3") return CachePolicy::kClock3;
  return name == "direct" ? CachePolicy::kDirect : CachePolicy::kNone;
}

}  // namespace

NvmeBackend::NvmeBackend(const Context& context, Circuit& circuit)
    : context_(context), circuit_(circuit), io_(choose_io(context.config, context.catalog)) {
  make_cache();
  make_drivers();
  context_.telemetry.header(&layout::Header::engine,
                            io_.inline_lanes ? layout::ENGINE_INLINE : io_.kind);
  context_.telemetry.event(layout::EVENT_IO_CHOSEN, kNoLane, io_.kind, io_.inline_lanes);
}

void NvmeBackend::make_cache() {
  const Config& config = context_.config;
  std::string policy = config.cache_policy;
  policy_reason_ = "configured";
  const uint64_t table_bytes = context_.catalog.rows() * context_.catalog.format().row_bytes();
  if (policy == "auto") {
    // Below a tenth of the table ghosts pay for themselves; above it a plain CLOCK hits more.
    policy = config.cache_bytes * 10 < table_bytes ? "s3" : "clk3";
    policy_reason_ = "cache is " + std::to_string(100 * config.cache_bytes / table_bytes) +
                     " % of the table";
  }
  if (policy == "none" || config.cache_bytes == 0) return;
  cache_ = std::make_unique<Cache>(config.cache_bytes, policy_named(policy),
                                   context_.catalog.format(), config.hugepages,
                                   context_.telemetry);
  context_.telemetry.header(&layout::Header::cache_policy, uint32_t(cache_->policy()));
  if (!config.prefault) {
    const std::atomic<bool> never{false};
    cache_->prefault(never);
    return;
  }
  prefault_ = std::thread([this] {
    block_signals();
    name_thread("rs-prefault");
    cache_->prefault(stop_prefault_);
  });
}

void NvmeBackend::make_drivers() {
  const Config& config = context_.config;
  DriverOptions options{config.depth, config.depth * 4, config.soft_ms * kMs,
                        config.warn_ms * kMs, config.verify_level(), true};
  const auto driver = [&](const DriverOptions& o) {
    return std::make_unique<Driver>(o, context_.catalog, cache_.get(), context_.lanes,
                                    context_.telemetry, io_.make);
  };
  context_.telemetry.gauge(&layout::Gauges::inflight_limit, config.depth);
  if (io_.inline_lanes)
    for (uint32_t k = 0; k < context_.lanes.size(); ++k) lane_drivers_.push_back(driver(options));
  else
    owner_ = std::make_unique<Owner>(driver(options), context_.lanes.size(), "rs-owner", 0,
                                     context_.telemetry);
  if (cache_ && config.hint_depth > 0) {
    options.depth = config.hint_depth;
    options.hedge = false;
    prefetcher_ =
        std::make_unique<Owner>(driver(options), 1, "rs-prefetch", 1, context_.telemetry);
  }
}

NvmeBackend::~NvmeBackend() {
  stop_prefault_.store(true);
  if (prefault_.joinable()) prefault_.join();
  if (cache_) context_.telemetry.gauge(&layout::Gauges::cache_rows_used, 0);
}

bool NvmeBackend::stop() {
  const bool prefetcher_ended = !prefetcher_ || prefetcher_->stop(2 * kSecond);
  return (!owner_ || owner_->stop(2 * kSecond)) && prefetcher_ended;
}

Want NvmeBackend::want(const Lane& lane, uint32_t miss) const {
  return {lane.seq(), lane.index, lane.misses[miss].position, lane.misses[miss].row};
}

uint32_t NvmeBackend::gather(Lane& lane, rs_request& request, uint64_t deadline_ns) {
  const uint32_t bad = classify(context_, lane, request);
  if (bad != RS_OK) return bad;
  request.unique = lane.unique_count;
  lane.record.state(layout::LANE_PROBE, now_ns());
  probe(lane, request);
  if (lane.miss_count == 0) {
    fan_out(context_, lane);
    return RS_OK;
  }
  const uint64_t began = now_ns();
  if (circuit_.open()) deadline_ns = std::min(deadline_ns, began + context_.config.warn_ms * kMs);
  lane.record.misses(lane.miss_count);
  lane.record.state(layout::LANE_WAIT_IO, began);
  lane.expect(lane.miss_count);
  const uint32_t status = fetch(lane, deadline_ns);
  return settle(lane, request, status, began);
}

// Three passes over each block of rows: fetch the sets, fetch the rows, copy. The memory
// latencies of a block overlap instead of adding up.
void NvmeBackend::probe(Lane& lane, rs_request& request) {
  lane.miss_count = 0;
  for (uint32_t from = 0; from < lane.unique_count; from += kBlock) {
    const uint32_t to = std::min(lane.unique_count, from + kBlock);
    if (cache_) {
      for (uint32_t k = from; k < to; ++k) cache_->prefetch_set(lane.uniques[k].row);
      for (uint32_t k = from; k < to; ++k) cache_->prefetch_row(lane.uniques[k].row);
    }
    for (uint32_t k = from; k < to; ++k) {
      const RowAt at = lane.uniques[k];
      const bool hit = cache_ && cache_->get(at.row, lane.out.codes_at(at.position),
                                             lane.out.scales_at(at.position));
      if (!hit) lane.misses[lane.miss_count++] = at;
    }
  }
  request.misses = lane.miss_count;
  request.hits = lane.unique_count - lane.miss_count;
}

uint32_t NvmeBackend::fetch(Lane& lane, uint64_t deadline_ns) {
  // Neighbours in the table share a page; sorted, they are wanted together and read once.
  if (lane.miss_count > context_.config.depth)
    std::sort(lane.misses.begin(), lane.misses.begin() + lane.miss_count,
              [](const RowAt& a, const RowAt& b) { return a.row < b.row; });
  return io_.inline_lanes ? fetch_inline(lane, deadline_ns)
                          : fetch_through_owner(lane, deadline_ns);
}

uint32_t NvmeBackend::fetch_inline(Lane& lane, uint64_t deadline_ns) {
  Driver& driver = *lane_drivers_[lane.index];
  uint32_t next = 0;
  while (lane.pending() > 0) {
    while (next < lane.miss_count && driver.take(want(lane, next))) ++next;
    driver.pump(kInlineSliceNs);
    lane.record.progress(lane.pending());
    const uint64_t now = now_ns();
    const uint32_t stop = lane.stop_reason(now, deadline_ns);
    if (stop != RS_OK && lane.pending() > 0) return stop;
    if (driver.quarantine_full(now)) {
      circuit_.trip();
      if (next < lane.miss_count) return RS_CIRCUIT_OPEN;
    }
  }
  return RS_OK;
}

uint32_t NvmeBackend::fetch_through_owner(Lane& lane, uint64_t deadline_ns) {
  uint32_t next = 0;
  const uint64_t spin_until = now_ns() + kSpinNs;
  while (lane.pending() > 0) {
    const uint32_t before = next;
    while (next < lane.miss_count && owner_->push(lane.index, want(lane, next))) ++next;
    if (next != before) owner_->ring_doorbell();
    const uint64_t now = now_ns();
    const uint32_t stop = lane.stop_reason(now, deadline_ns);
    if (stop != RS_OK) return stop;
    if (owner_->quarantine_full()) circuit_.trip();
    lane.record.progress(lane.pending());
    if (now < spin_until) {
      cpu_relax();
      continue;
    }
    // A full ring is drained by the owner without a wake-up, so then look again soon.
    const uint64_t slice = next < lane.miss_count ? kMs / 10 : kSliceNs;
    lane.wait_for_delivery(std::min(slice, deadline_ns - now));
  }
  return RS_OK;
}

uint32_t NvmeBackend::settle(Lane& lane, rs_request& request, uint32_t status,
                             uint64_t began_ns) {
  const uint32_t undelivered = lane.pending();
  lane.end();
  const uint64_t now = now_ns();
  context_.telemetry.observe(layout::HISTOGRAM_LANE_WAIT, now - began_ns);
  if (status == RS_OK) status = lane.failure();
  if (status == RS_OK) circuit_.note_read_in_time();
  if (status == RS_DEADLINE || status == RS_CIRCUIT_OPEN) {
    circuit_.note_hard(now);
    context_.telemetry.event(layout::EVENT_HARD_DEADLINE, lane.index, undelivered,
                             now - began_ns);
  }
  if (status == RS_OK) {
    lane.record.state(layout::LANE_COPY, now);
    fan_out(context_, lane);
    return RS_OK;
  }
  if (request.policy != RS_ZERO || status == RS_RELEASED) return status;
  // Which of the misses arrived is not tracked: all of them are given as zeros, consistently.
  for (uint32_t k = 0; k < lane.miss_count; ++k) zero_row(context_, lane, lane.misses[k].position);
  fan_out(context_, lane);
  request.degraded = lane.miss_count;
  return RS_OK;
}

void NvmeBackend::hint(const uint32_t* rows, uint32_t count) {
  if (!prefetcher_) return;
  uint32_t free = 0;
  if (!hint_lock_.compare_exchange_strong(free, 1, std::memory_order_acquire)) {
    context_.telemetry.count(&layout::Counters::prefetch_dropped, count);
    return;
  }
  uint32_t taken = 0;
  while (taken < count &&
         (cache_->holds(rows[taken]) || prefetcher_->push(0, {0, kNoLane, 0, rows[taken]})))
    ++taken;
  hint_lock_.store(0, std::memory_order_release);
  prefetcher_->ring_doorbell();
  context_.telemetry.count(&layout::Counters::prefetch_dropped, count - taken);
}

void NvmeBackend::warm(const std::vector<uint32_t>& rows,
                       const std::function<RowView(uint32_t)>& source) {
  if (!cache_) return;
  if (prefault_.joinable()) prefault_.join();
  for (const uint32_t row : rows) cache_->put(row, source(row), false);
}

std::string NvmeBackend::describe() const {
  std::string out = "\"io_reason\":" + json_string(io_.reason);
  if (!cache_) return out + ",\"cache\":null";
  return out + ",\"cache\":{\"policy\":" + json_string(policy_name(cache_->policy())) +
         ",\"policy_reason\":" + json_string(policy_reason_) +
         ",\"capacity_rows\":" + std::to_string(cache_->capacity_rows()) +
         ",\"bytes\":" + std::to_string(cache_->bytes()) +
         ",\"memory\":" + json_string(cache_->memory_kind()) + "}";
}

}  // namespace rs
