#include "guardian.h"

namespace rs {

Guardian::Guardian(Telemetry& telemetry, uint32_t lanes, uint64_t warn_ns,
                   std::function<void(uint64_t)> on_tick)
    : telemetry_(telemetry), lanes_(lanes), warn_ns_(warn_ns), on_tick_(std::move(on_tick)) {
  thread_ = std::thread([this] { run(); });
}

Guardian::~Guardian() {
  stop_.store(1);
  futex_wake_all(stop_);
  thread_.join();
}

void Guardian::run() {
  block_signals();
  name_thread("rs-guardian");
  while (stop_.load() == 0) {
    const uint64_t now = now_ns();
    telemetry_.heartbeat(now);
    if (telemetry_.on()) {
      find_oldest_read();
      warn_about_lanes(now);
    }
    on_tick_(now);
    futex_wait(stop_, 0, 100 * kMs);
  }
}

void Guardian::find_oldest_read() {
  layout::Page& page = telemetry_.page();
  uint64_t start = 0, oldest_page = 0, lane = 0;
  for (const layout::Inflight& entry : page.inflight) {
    if (load_relaxed(entry.state) == layout::INFLIGHT_FREE) continue;
    const uint64_t began = load_relaxed(entry.start_ns);
    if (began == 0 || (start != 0 && began >= start)) continue;
    start = began;
    oldest_page = load_relaxed(entry.page);
    lane = load_relaxed(entry.lane);
  }
  telemetry_.gauge(&layout::Gauges::oldest_read_page, oldest_page);
  telemetry_.gauge(&layout::Gauges::oldest_read_lane, lane);
  telemetry_.gauge(&layout::Gauges::oldest_read_start_ns, start);
}

void Guardian::warn_about_lanes(uint64_t now) {
  layout::Page& page = telemetry_.page();
  bool slow = false;
  for (uint32_t k = 0; k < lanes_; ++k) {
    layout::Lane& lane = page.lane[k];
    const uint64_t enter = load_relaxed(lane.enter);
    const bool open = enter > load_relaxed(lane.exit);
    const uint64_t since = load_relaxed(lane.state_ns);
    if (!open || now < since + warn_ns_) continue;
    slow = true;
    if (warned_enter_[k] == enter) continue;
    warned_enter_[k] = enter;
    telemetry_.count(&layout::Counters::warn_deadlines);
    add_relaxed(lane.stuck_spells, 1u);
    telemetry_.event(layout::EVENT_WARN, k, load_relaxed(lane.state), now - since);
  }
  const bool failing = load_relaxed(page.header.circuit) == layout::CIRCUIT_OPEN;
  telemetry_.header(&layout::Header::health, failing  ? layout::HEALTH_FAILING
                                             : slow ? layout::HEALTH_SLOW
                                                    : layout::HEALTH_OK);
}

}  // namespace rs
