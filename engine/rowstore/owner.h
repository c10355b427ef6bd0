// One thread that owns a driver and serves every lane through fixed rings, or serves hints.
#pragma once
#include <memory>
#include <thread>
#include <vector>

#include "driver.h"

namespace rs {

// Single producer (the lane), single consumer (the owner).
class WantRing {
 public:
  static constexpr uint32_t kCapacity = 4096;

  bool push(const Want& want);
  bool front(Want* want) const;
  void pop() { head_.fetch_add(1, std::memory_order_release); }
  uint32_t size() const {
    return tail_.load(std::memory_order_acquire) - head_.load(std::memory_order_acquire);
  }

 private:
  std::atomic<uint32_t> head_{0};
  std::atomic<uint32_t> tail_{0};
  Want wants_[kCapacity];
};

class Owner {
 public:
  Owner(std::unique_ptr<Driver> driver, uint32_t rings, const char* name, uint32_t index,
        Telemetry& telemetry);
  ~Owner();

  // False when the ring is full. Call ring_doorbell() after the last push of a batch.
  bool push(uint32_t ring, const Want& want) { return rings_[ring]->push(want); }
  void ring_doorbell();
  bool quarantine_full() const { return quarantine_full_.load(std::memory_order_relaxed); }

  // False when the thread did not end within the time-out: it is stuck in the kernel.
  bool stop(uint64_t timeout_ns);

 private:
  void run(const char* name);
  bool feed();

  std::unique_ptr<Driver> driver_;
  std::vector<std::unique_ptr<WantRing>> rings_;
  std::atomic<uint32_t> doorbell_{0};
  std::atomic<uint32_t> sleeping_{0};
  std::atomic<bool> stop_{false};
  std::atomic<uint32_t> ended_{0};
  std::atomic<bool> quarantine_full_{false};
  uint32_t index_;
  Telemetry& telemetry_;
  std::thread thread_;
};

}  // namespace rs
