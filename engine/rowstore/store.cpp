#include "store.h"

#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

namespace rs {
namespace {

uint32_t error_class(uint32_t status) {
  switch (status) {
    case RS_IO: return layout::ERROR_IO;
    case RS_CORRUPT: return layout::ERROR_CORRUPT;
    case RS_BAD_ID: return layout::ERROR_BAD_ID;
    case RS_DEADLINE: return layout::ERROR_DEADLINE;
    case RS_CIRCUIT_OPEN: return layout::ERROR_CIRCUIT_OPEN;
    case RS_RELEASED: return layout::ERROR_RELEASED;
    default: return layout::ERROR_OTHER;
  }
}

}  // namespace

Store::Store(const std::string& config_text)
    : config_(Config::parse(config_text)),
      telemetry_(config_.telemetry, config_.rank, config_.world),
      catalog_(Catalog::open(config_)),
      lanes_(std::make_unique<LaneSet>(config_.lanes, config_.lane_rows, catalog_->format(),
                                       telemetry_)),
      circuit_(config_.trip_hard, config_.trip_window_ms * kMs, telemetry_) {
  guardian_ = std::make_unique<Guardian>(telemetry_, config_.lanes, config_.warn_ms * kMs,
                                         [this](uint64_t now) { tick(now); });
  switcher_ = std::make_unique<Switcher>(Context{config_, *catalog_, telemetry_, *lanes_},
                                         circuit_);
  switcher_->open();
  if (config_.control != "off")
    control_ = std::make_unique<Control>(
        config_.control, [this](const std::string& line) { return answer(line); });
  telemetry_.event(layout::EVENT_OPENED, kNoLane, catalog_->rows(), config_.lanes);
}

Store::~Store() {
  control_.reset();
  for (auto& async : async_) async.reset();
  {
    const std::lock_guard<std::mutex> guard(binding_mutex_);
    bindings_.clear();
  }
  guardian_.reset();
  switcher_.reset();
  telemetry_.event(layout::EVENT_CLOSED, kNoLane, 0, 0);
  telemetry_.header(&layout::Header::health, layout::HEALTH_CLOSED);
}

uint32_t Store::refuse(const rs_request& request) const {
  if (forked()) return RS_FORKED;
  if (request.lane >= config_.lanes) return RS_CONFIG;
  return request.count > config_.lane_rows ? RS_TOO_MANY : RS_OK;
}

uint32_t Store::gather(rs_request& request) {
  request.hits = request.misses = request.unique = request.degraded = 0;
  request.status = refuse(request);
  if (request.status != RS_OK) return request.status;
  Lane& lane = (*lanes_)[request.lane];
  if (!lane.claim()) return request.status = RS_BUSY;
  request.status = run(lane, request);
  lane.unclaim();
  return request.status;
}

uint32_t Store::run(Lane& lane, rs_request& request) {
  const uint64_t began = now_ns();
  const bool prefill = request.count >= config_.prefill_rows;
  const uint64_t allowed = request.deadline_ns ? request.deadline_ns
                           : (prefill ? config_.hard_prefill_ms : config_.hard_ms) * kMs;
  if (request.policy == RS_FAIL) request.policy = config_.policy();
  const uint64_t deadline = request.policy == RS_WAIT ? UINT64_MAX : began + allowed;
  lane.out = Output::of(request, catalog_->format());
  lane.clear_release();
  lane.record.enter(request.layer, request.count, began, deadline, request.tag);
  Backend* backend = switcher_->enter(lane);
  request.mode = backend->mode();
  const uint32_t status = backend->gather(lane, request, deadline);
  switcher_->leave(lane);
  const uint64_t now = now_ns();
  request.elapsed_ns = now - began;
  ++request.sequence;
  account(request, status);
  lane.record.exit(status == RS_OK ? layout::LANE_IDLE : layout::LANE_FAILED, status, now);
  return status;
}

void Store::account(const rs_request& request, uint32_t status) {
  if (!telemetry_.on()) return;
  telemetry_.count(&layout::Counters::gathers);
  telemetry_.count(&layout::Counters::rows, request.count);
  telemetry_.count(&layout::Counters::unique_rows, request.unique);
  telemetry_.count(&layout::Counters::hits, request.hits);
  if (request.misses) telemetry_.count(&layout::Counters::misses, request.misses);
  if (request.degraded) telemetry_.count(&layout::Counters::degraded_rows, request.degraded);
  telemetry_.observe(request.count >= config_.prefill_rows ? layout::HISTOGRAM_GATHER_PREFILL
                                                           : layout::HISTOGRAM_GATHER_DECODE,
                     request.elapsed_ns);
  if (status == RS_OK) return;
  telemetry_.error(error_class(status));
  if (status == RS_DEADLINE) telemetry_.count(&layout::Counters::hard_deadlines);
}

uint32_t Store::hint(uint32_t layer, const int64_t* ids, uint32_t count) {
  if (forked()) return RS_FORKED;
  uint32_t base = 0;
  const Table* table = catalog_->of_layer(layer, &base);
  if (!table) return RS_BAD_ID;
  uint32_t rows[256];
  uint32_t used = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const int64_t local = ids[i] < 0 ? -1 : table->ranges().local(ids[i]);
    if (local < 0) continue;  // a hint about a row that is not here is not an error
    rows[used++] = base + uint32_t(local);
    if (used < 256) continue;
    switcher_->hint(rows, used);
    used = 0;
  }
  if (used > 0) switcher_->hint(rows, used);
  return RS_OK;
}

uint32_t Store::submit(const rs_request& request, uint64_t* ticket) {
  if (const uint32_t refused = refuse(request)) return refused;
  Async* async;
  {
    const std::lock_guard<std::mutex> guard(async_mutex_);
    auto& slot = async_[request.lane];
    if (!slot) slot = std::make_unique<Async>();
    async = slot.get();
  }
  const auto number = std::make_shared<std::atomic<uint64_t>>(0);
  const uint64_t launched = async->executor.launch([this, async, request, number] {
    rs_request done = request;
    gather(done);
    while (number->load() == 0) cpu_relax();  // set right after launch() returned
    const std::lock_guard<std::mutex> guard(async->mutex);
    async->results[number->load() % (kQueuedMax * 2)] = done;
  });
  if (launched == 0) return RS_BUSY;
  number->store(launched);
  *ticket = launched;
  return RS_OK;
}

uint32_t Store::wait(uint32_t lane, uint64_t ticket, uint64_t timeout_ns, rs_request* result) {
  if (forked()) return RS_FORKED;
  if (lane >= config_.lanes) return RS_CONFIG;
  Async* async;
  {
    const std::lock_guard<std::mutex> guard(async_mutex_);
    async = async_[lane].get();
  }
  if (!async || ticket == 0) return RS_CONFIG;
  const uint32_t status = async->executor.wait(ticket, timeout_ns);
  if (status != RS_OK) return status;
  const std::lock_guard<std::mutex> guard(async->mutex);
  *result = async->results[ticket % (kQueuedMax * 2)];
  return RS_OK;
}

uint32_t Store::release(uint32_t lane, uint32_t status) {
  if (lane >= config_.lanes || status == RS_OK || status == RS_PENDING) return RS_CONFIG;
  (*lanes_)[lane].release(status);
  telemetry_.count(&layout::Counters::releases);
  telemetry_.event(layout::EVENT_RELEASED, lane, status, 0);
  const std::lock_guard<std::mutex> guard(binding_mutex_);
  for (const auto& binding : bindings_)
    if (binding->lane() == lane) binding->release(status);
  return RS_OK;
}

void Store::bind_flags(std::unique_ptr<FlagBinding> binding) {
  const std::lock_guard<std::mutex> guard(binding_mutex_);
  bindings_.push_back(std::move(binding));
  telemetry_.header(&layout::Header::handoff, layout::HANDOFF_MEMOP);
}

uint32_t Store::unbind_flags(uint32_t lane) {
  std::vector<std::unique_ptr<FlagBinding>> gone;  // joined after the lock is released
  const std::lock_guard<std::mutex> guard(binding_mutex_);
  for (auto& binding : bindings_)
    if (binding->lane() == lane) gone.push_back(std::move(binding));
  std::erase(bindings_, nullptr);
  return gone.empty() ? RS_CONFIG : RS_OK;
}

uint32_t Store::bind_stamps(uint32_t lane, const uint64_t* gpu_pre, const uint64_t* gpu_post) {
  if (lane >= config_.lanes) return RS_CONFIG;
  const std::lock_guard<std::mutex> guard(binding_mutex_);
  stamps_[lane] = {gpu_pre, gpu_post};
  return RS_OK;
}

void Store::stamp(uint32_t lane, uint64_t layout::Lane::*counter) {
  if (lane < config_.lanes) add_relaxed(telemetry_.page().lane[lane].*counter, uint64_t(1));
}

void Store::tick(uint64_t now) {
  if (circuit_.open() && config_.mode == "auto" && switcher_) switcher_->request("ram");
  const std::lock_guard<std::mutex> guard(binding_mutex_);
  for (const auto& binding : bindings_)
    if (binding->release_if_overdue(now))
      telemetry_.event(layout::EVENT_RELEASED, binding->lane(), RS_DEADLINE, 0);
  for (uint32_t k = 0; k < config_.lanes; ++k) {
    layout::Lane& lane = telemetry_.page().lane[k];
    if (const uint64_t* pre = stamps_[k].gpu_pre)
      store_relaxed(lane.gpu_pre, __atomic_load_n(pre, __ATOMIC_ACQUIRE));
    if (const uint64_t* post = stamps_[k].gpu_post)
      store_relaxed(lane.gpu_post, __atomic_load_n(post, __ATOMIC_ACQUIRE));
  }
}

std::string Store::answer(const std::string& line) {
  std::stringstream words(line);
  std::string verb, target;
  words >> verb;
  uint32_t status = RS_CONFIG;
  if (verb == "info") return info();
  if (verb == "ping") status = RS_OK;
  if (verb == "mode" && words >> target) status = switcher_->request(target);
  if (verb == "release") {
    uint32_t lane = kNoLane, given = RS_RELEASED;
    words >> lane;
    words >> given;
    status = release(lane, words.fail() ? uint32_t(RS_RELEASED) : given);
  }
  rs_mode_ticket ticket;
  switcher_->poll(&ticket);
  std::stringstream out;
  out << "{\"status\":" << json_string(rs_status_name(verb == "ticket" ? ticket.status : status))
      << ",\"mode\":" << ticket.mode << ",\"done_bytes\":" << ticket.done_bytes
      << ",\"total_bytes\":" << ticket.total_bytes << ",\"elapsed_ns\":" << ticket.elapsed_ns
      << ",\"reason\":" << json_string(ticket.reason) << "}";
  return out.str();
}

std::string Store::info() {
  std::stringstream out;
  out << "{\"config\":" << config_.to_json() << ",\"tables\":[";
  for (size_t k = 0; k < catalog_->tables().size(); ++k) {
    const Table& table = *catalog_->tables()[k];
    out << (k ? "," : "") << "{\"path\":" << json_string(table.path())
        << ",\"layer\":" << table.layer() << ",\"rows\":" << table.rows()
        << ",\"pages\":" << table.pages() << ",\"sparse\":" << (table.sparse() ? "true" : "false")
        << ",\"reads\":" << json_string(table.direct_reason()) << "}";
  }
  out << "],\"row_bytes\":" << catalog_->format().row_bytes() << ","
      << switcher_->describe() << "}";
  return out.str();
}

uint32_t Store::selftest(uint32_t rows) {
  const RowFormat& format = catalog_->format();
  for (const auto& table : catalog_->tables()) {
    const uint32_t count =
        uint32_t(std::min<uint64_t>({rows, table->rows(), config_.lane_rows}));
    std::vector<int64_t> ids(count);
    for (uint32_t k = 0; k < count; ++k)
      ids[k] = int64_t(table->ranges().global(table->rows() * k / count));
    std::vector<uint8_t> got(size_t(count) * format.row_bytes());
    rs_request request{};
    request.ids = ids.data();
    request.codes = got.data();
    request.count = count;
    request.layer = table->layer();
    if (const uint32_t status = gather(request)) return status;
    std::vector<uint8_t> page(table->read_bytes());
    for (uint32_t k = 0; k < count; ++k) {
      const uint64_t local = table->rows() * k / count;
      const Region aligned = Region::anonymous(table->read_bytes(), "no");
      if (pread(table->fd(), aligned.data(), table->read_bytes(),
                off_t(table->read_offset(table->page_of(local)))) <= 0)
        return RS_IO;
      const RowView view = table->row_in_buffer(aligned.data(), local);
      const uint8_t* row = got.data() + size_t(k) * format.row_bytes();
      if (memcmp(row, view.codes, format.code_bytes) != 0 ||
          memcmp(row + format.code_bytes, view.scales, format.scale_bytes) != 0)
        return RS_CORRUPT;
    }
  }
  return RS_OK;
}

}  // namespace rs
