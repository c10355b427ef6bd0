// When a read counts as late: max(configured floor, 8 x p99 of the last minute).
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>

namespace rs {

class SoftDeadline {
 public:
  explicit SoftDeadline(uint64_t floor_ns) : floor_ns_(floor_ns), late_ns_(floor_ns) {}

  void note(uint64_t read_ns) {
    const uint32_t octave = 63 - uint32_t(__builtin_clzll(read_ns | 1));
    ++counts_[octave];
    ++total_;
  }

  uint64_t late_ns(uint64_t now) {
    if (now - refreshed_ns_ > kRefreshNs) refresh(now);
    return late_ns_;
  }

 private:
  static constexpr uint64_t kRefreshNs = 1'000'000'000;
  static constexpr uint32_t kEnough = 1000;

  void refresh(uint64_t now) {
    refreshed_ns_ = now;
    if (total_ < kEnough) return;
    uint64_t above = 0;
    uint32_t octave = 63;
    while (octave > 0 && (above += counts_[octave]) * 100 < total_) --octave;
    late_ns_ = std::max(floor_ns_, 8 * (uint64_t(1) << octave));
    if (++refreshes_ % 60 != 0) return;
    for (auto& count : counts_) count /= 2;  // the last minute weighs most
    total_ /= 2;
  }

  uint64_t floor_ns_, late_ns_, refreshed_ns_ = 0, total_ = 0;
  uint32_t refreshes_ = 0;
  std::array<uint64_t, 64> counts_{};
};

}  // namespace rs
