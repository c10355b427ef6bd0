// The whole table resident, locked and prefaulted; rows are copied, nothing else happens.
#pragma once
#include <vector>

#include "backend.h"
#include "fill.h"

namespace rs {

class RamBackend final : public Backend {
 public:
  // Fills from disk, or takes the keeper's memory. Throws Failure and leaves nothing behind.
  RamBackend(const Context& context, uint32_t share_percent, const std::atomic<bool>& stop);
  ~RamBackend() override;

  uint32_t mode() const override { return layout::MODE_RAM; }
  uint32_t gather(Lane& lane, rs_request& request, uint64_t deadline_ns) override;
  std::string describe() const override;

  RowView row(uint32_t store_row) const;

 private:
  void fill(const Table& table, Region& region, const std::atomic<bool>& stop,
            uint32_t share_percent);
  void publish_progress(uint64_t done_bytes);

  Context context_;
  std::vector<Region> images_;  // in the order of the catalog's tables
  bool locked_ = true;
  std::string lock_reason_ = "locked";
  std::string fit_reason_;
  uint64_t filled_bytes_ = 0;
  uint64_t fill_began_ns_ = 0;
};

}  // namespace rs
