// Direct reads behind a row cache.
#pragma once
#include <memory>
#include <thread>
#include <vector>

#include "backend.h"
#include "circuit.h"
#include "io_probe.h"
#include "owner.h"

namespace rs {

class NvmeBackend final : public Backend {
 public:
  NvmeBackend(const Context& context, Circuit& circuit);
  ~NvmeBackend() override;

  uint32_t mode() const override { return layout::MODE_NVME; }
  uint32_t gather(Lane& lane, rs_request& request, uint64_t deadline_ns) override;
  void hint(const uint32_t* rows, uint32_t count) override;
  std::string describe() const override;
  bool stop() override;

  // Rows the cache holds, to warm the cache of a later backend with.
  std::vector<uint32_t> cached_rows() const {
    return cache_ ? cache_->resident_rows() : std::vector<uint32_t>{};
  }
  void warm(const std::vector<uint32_t>& rows,
            const std::function<RowView(uint32_t)>& source);

 private:
  void make_cache();
  void make_drivers();
  void probe(Lane& lane, rs_request& request);
  uint32_t fetch(Lane& lane, uint64_t deadline_ns);
  uint32_t fetch_inline(Lane& lane, uint64_t deadline_ns);
  uint32_t fetch_through_owner(Lane& lane, uint64_t deadline_ns);
  uint32_t settle(Lane& lane, rs_request& request, uint32_t status, uint64_t began_ns);
  Want want(const Lane& lane, uint32_t miss) const;

  Context context_;
  Circuit& circuit_;
  IoChoice io_;
  std::unique_ptr<Cache> cache_;
  std::string policy_reason_;
  std::vector<std::unique_ptr<Driver>> lane_drivers_;
  std::unique_ptr<Owner> owner_, prefetcher_;
  std::atomic<bool> stop_prefault_{false};
  std::atomic<uint32_t> hint_lock_{0};
  std::thread prefault_;
};

}  // namespace rs
