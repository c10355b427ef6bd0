#include "owner.h"

namespace rs {

bool WantRing::push(const Want& want) {
  const uint32_t tail = tail_.load(std::memory_order_relaxed);
  if (tail - head_.load(std::memory_order_acquire) >= kCapacity) return false;
  wants_[tail % kCapacity] = want;
  tail_.store(tail + 1, std::memory_order_release);
  return true;
}

bool WantRing::front(Want* want) const {
  const uint32_t head = head_.load(std::memory_order_relaxed);
  if (head == tail_.load(std::memory_order_acquire)) return false;
  *want = wants_[head % kCapacity];
  return true;
}

Owner::Owner(std::unique_ptr<Driver> driver, uint32_t rings, const char* name, uint32_t index,
             Telemetry& telemetry)
    : driver_(std::move(driver)), index_(index), telemetry_(telemetry) {
  for (uint32_t k = 0; k < rings; ++k) rings_.push_back(std::make_unique<WantRing>());
  thread_ = std::thread([this, name] { run(name); });
}

Owner::~Owner() {
  if (thread_.joinable()) stop(2 * kSecond);
}

void Owner::ring_doorbell() {
  doorbell_.fetch_add(1);
  if (sleeping_.load()) futex_wake_all(doorbell_);
}

bool Owner::stop(uint64_t timeout_ns) {
  stop_.store(true);
  ring_doorbell();
  const uint64_t give_up = now_ns() + timeout_ns;
  while (ended_.load() == 0 && now_ns() < give_up) futex_wait(ended_, 0, 10 * kMs);
  if (ended_.load() == 0) {
    thread_.detach();
    return false;
  }
  thread_.join();
  return true;
}

bool Owner::feed() {
  bool fed = false;
  for (const auto& ring : rings_) {
    Want want;
    while (ring->front(&want) && driver_->take(want)) {
      ring->pop();
      fed = true;
    }
  }
  return fed;
}

void Owner::run(const char* name) {
  constexpr uint64_t kBetweenDoorbells = kMs;
  block_signals();
  name_thread(name);
  while (!stop_.load(std::memory_order_relaxed)) {
    const uint32_t rung = doorbell_.load();
    const bool fed = feed();
    store_relaxed(telemetry_.page().gauges.owner_heartbeat_ns[index_], now_ns());
    if (driver_->outstanding() > 0) {
      driver_->pump(kBetweenDoorbells);
      quarantine_full_.store(driver_->quarantine_full(now_ns()), std::memory_order_relaxed);
    } else if (!fed) {
      sleeping_.store(1);
      futex_wait(doorbell_, rung, 50 * kMs);
      sleeping_.store(0);
    }
  }
  ended_.store(1);
  futex_wake_all(ended_);
}

}  // namespace rs
