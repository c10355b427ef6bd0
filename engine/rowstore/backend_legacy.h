// The first generation's behaviour, kept so that its hang can be provoked, seen and compared:
// rows one after another, two blocking direct reads each, under one of 256 mutexes, no time-out.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "backend.h"

namespace rs {

class LegacyBackend final : public Backend {
 public:
  explicit LegacyBackend(const Context& context);

  uint32_t mode() const override { return layout::MODE_LEGACY; }
  uint32_t gather(Lane& lane, rs_request& request, uint64_t deadline_ns) override;
  std::string describe() const override;

 private:
  static constexpr uint32_t kShards = 256;

  uint32_t row(Lane& lane, uint32_t store_row, uint32_t position, rs_request& request);
  uint32_t read_under_lock(Lane& lane, uint32_t store_row, uint8_t* buffer);
  void lock(Lane& lane, uint32_t shard);
  void unlock(uint32_t shard);

  Context context_;
  std::unique_ptr<std::mutex[]> mutexes_;
  uint64_t slots_ = 0;             // direct-mapped cache; 0 maps every row to shard 0
  std::vector<uint32_t> tags_;     // row + 1, guarded by the slot's shard
  std::vector<uint8_t> rows_;
};

}  // namespace rs
