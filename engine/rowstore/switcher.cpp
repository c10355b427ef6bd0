#include "switcher.h"

#include <stdio.h>

#include <algorithm>

#include "backend_legacy.h"
#include "backend_nvme.h"
#include "backend_ram.h"

namespace rs {
namespace {

constexpr uint32_t kFullShare = 100;

uint32_t mode_named(const std::string& name) {
  if (name == "nvme") return layout::MODE_NVME;
  if (name == "ram") return layout::MODE_RAM;
  return name == "legacy" ? layout::MODE_LEGACY : layout::MODE_NONE;
}

}  // namespace

Switcher::Switcher(const Context& context, Circuit& circuit)
    : context_(context), circuit_(circuit) {
  ticket_.status = RS_OK;
}

Switcher::~Switcher() {
  abort_.store(true);
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    stop_ = true;
    wake_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  current_.store(nullptr);
  if (serving_) let_go(std::move(serving_));
  for (Retired& old : retired_) let_go(std::move(old.backend));
}

void Switcher::open() {
  const std::string& mode = context_.config.mode;
  const bool automatic = mode == "auto";
  publish(build(automatic ? uint32_t(layout::MODE_NVME) : mode_named(mode)));
  thread_ = std::thread([this] { run(); });
  if (!automatic) return;
  const Fit fit = ram_fit(context_.catalog.image_bytes(), context_.config.reserve_bytes);
  if (fit.fits) request("ram");
  else finish(RS_NO_MEMORY, "auto stays on nvme: " + fit.reason);
}

std::unique_ptr<Backend> Switcher::build(uint32_t mode) {
  if (mode == layout::MODE_LEGACY) return std::make_unique<LegacyBackend>(context_);
  if (mode == layout::MODE_NVME) {
    auto nvme = std::make_unique<NvmeBackend>(context_, circuit_);
    if (serving_ && serving_->mode() == layout::MODE_RAM) {
      const auto* ram = static_cast<const RamBackend*>(serving_.get());
      nvme->warm(warm_rows_, [ram](uint32_t row) { return ram->row(row); });
    }
    return nvme;
  }
  // The first fill has the device to itself; later ones share it with the reads that serve.
  const uint32_t share = serving_ ? context_.config.fill_share_percent : kFullShare;
  return std::make_unique<RamBackend>(context_, share, abort_);
}

std::unique_ptr<Backend> Switcher::take_retired(uint32_t mode) {
  for (size_t k = 0; k < retired_.size(); ++k) {
    if (retired_[k].backend->mode() != mode) continue;
    auto backend = std::move(retired_[k].backend);
    retired_.erase(retired_.begin() + long(k));
    return backend;
  }
  return nullptr;
}

uint32_t Switcher::request(const std::string& target) {
  const uint32_t mode = mode_named(target);
  if (mode == layout::MODE_NONE) return RS_CONFIG;
  const std::lock_guard<std::mutex> guard(mutex_);
  if (running_ || wanted_ != 0) return RS_BUSY;
  wanted_ = mode;
  began_ns_ = now_ns();
  ticket_ = {};
  ticket_.status = RS_PENDING;
  wake_.notify_all();
  return RS_OK;
}

void Switcher::poll(rs_mode_ticket* ticket) {
  const std::lock_guard<std::mutex> guard(mutex_);
  *ticket = ticket_;
  const layout::Gauges& gauges = context_.telemetry.page().gauges;
  ticket->mode = load_relaxed(context_.telemetry.page().header.mode_current);
  ticket->done_bytes = load_relaxed(gauges.prefault_done_bytes);
  ticket->total_bytes = load_relaxed(gauges.prefault_total_bytes);
  if (ticket->status == RS_PENDING) ticket->elapsed_ns = now_ns() - began_ns_;
}

void Switcher::run() {
  block_signals();
  name_thread("rs-switch");
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stop_) {
    wake_.wait_for(lock, std::chrono::milliseconds(100), [&] { return stop_ || wanted_ != 0; });
    const uint32_t target = wanted_;
    wanted_ = 0;
    running_ = target != 0;
    lock.unlock();
    if (target != 0 && !abort_.load()) perform(target);
    retire_due();
    lock.lock();
    running_ = false;
  }
}

void Switcher::perform(uint32_t target) {
  Telemetry& telemetry = context_.telemetry;
  if (serving_->mode() == target) {
    finish(RS_OK, "already in this mode");
    return;
  }
  telemetry.header(&layout::Header::mode_target, target);
  state(layout::MODE_STATE_CHECKING);
  std::unique_ptr<Backend> next = take_retired(target);
  const bool kept = next != nullptr;
  try {
    if (!kept) {
      state(layout::MODE_STATE_FILLING);
      next = build(target);
    }
  } catch (const Failure& failure) {
    telemetry.header(&layout::Header::mode_target, serving_->mode());
    telemetry.event(layout::EVENT_MODE_FAILED, kNoLane, target, failure.status);
    finish(failure.status, failure.what());
    state(layout::MODE_STATE_FAILED);
    return;
  }
  state(layout::MODE_STATE_SWITCHING);
  publish(std::move(next));
  telemetry.count(&layout::Counters::mode_switches);
  finish(RS_OK, kept ? "switched to the backend kept from before" : "switched");
}

void Switcher::publish(std::unique_ptr<Backend> next) {
  const uint32_t mode = next->mode();
  current_.store(next.get());
  const uint64_t epoch = epoch_.fetch_add(1) + 1;
  std::swap(serving_, next);
  { const std::lock_guard<std::mutex> wait_for_hint(hint_mutex_); }
  if (next) {
    const uint64_t until = now_ns() + context_.config.grace_ms * kMs;
    retired_.push_back({std::move(next), epoch, until});
  }
  Telemetry& telemetry = context_.telemetry;
  telemetry.header(&layout::Header::mode_current, mode);
  telemetry.header(&layout::Header::mode_target, mode);
  telemetry.event(layout::EVENT_MODE_SWITCH, kNoLane, mode, epoch);
  state(retired_.empty() ? layout::MODE_STATE_STEADY : layout::MODE_STATE_DRAINING);
}

void Switcher::finish(uint32_t status, const std::string& reason) {
  const std::lock_guard<std::mutex> guard(mutex_);
  ticket_.status = status;
  ticket_.elapsed_ns = now_ns() - began_ns_;
  snprintf(ticket_.reason, sizeof ticket_.reason, "%s", reason.c_str());
}

bool Switcher::quiescent(uint64_t epoch) const {
  for (uint32_t k = 0; k < context_.lanes.size(); ++k) {
    const uint64_t inside = context_.lanes[k].epoch.load();
    if (inside != 0 && inside < epoch) return false;
  }
  return true;
}

// A lane that never leaves keeps its backend for ever: that costs memory and is the safe side.
void Switcher::retire_due() {
  const uint64_t now = now_ns();
  for (size_t k = 0; k < retired_.size();) {
    if (now < retired_[k].until_ns || !quiescent(retired_[k].epoch)) {
      ++k;
      continue;
    }
    auto backend = std::move(retired_[k].backend);
    retired_.erase(retired_.begin() + long(k));
    let_go(std::move(backend));
    if (retired_.empty()) state(layout::MODE_STATE_STEADY);
  }
}

void Switcher::let_go(std::unique_ptr<Backend> backend) {
  if (backend->mode() == layout::MODE_NVME)
    warm_rows_ = static_cast<NvmeBackend*>(backend.get())->cached_rows();
  if (backend->stop()) return;
  // A thread of it is inside a system call that does not return; what it uses must stay.
  context_.telemetry.event(layout::EVENT_OWNER_STUCK, kNoLane, backend->mode(), 0);
  [[maybe_unused]] auto* kept = backend.release();
}

void Switcher::hint(const uint32_t* rows, uint32_t count) {
  const std::lock_guard<std::mutex> guard(hint_mutex_);
  if (Backend* backend = current_.load()) backend->hint(rows, count);
}

std::string Switcher::describe() {
  const std::lock_guard<std::mutex> guard(hint_mutex_);
  Backend* backend = current_.load();
  return backend ? backend->describe() : "\"backend\":null";
}

void Switcher::state(uint32_t mode_state) {
  context_.telemetry.header(&layout::Header::mode_state, mode_state);
}

}  // namespace rs
