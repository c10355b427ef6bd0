// The store: composition of its parts, and the path of one gather through them.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "circuit.h"
#include "control.h"
#include "executor.h"
#include "flags.h"
#include "guardian.h"
#include "switcher.h"

namespace rs {

class Store {
 public:
  explicit Store(const std::string& config_text);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  const Config& config() const { return config_; }
  const Catalog& catalog() const { return *catalog_; }
  Telemetry& telemetry() { return telemetry_; }
  Switcher& switcher() { return *switcher_; }

  uint32_t gather(rs_request& request);
  uint32_t hint(uint32_t layer, const int64_t* ids, uint32_t count);
  uint32_t submit(const rs_request& request, uint64_t* ticket);
  uint32_t wait(uint32_t lane, uint64_t ticket, uint64_t timeout_ns, rs_request* result);

  uint32_t release(uint32_t lane, uint32_t status);
  void bind_flags(std::unique_ptr<FlagBinding> binding);
  uint32_t unbind_flags(uint32_t lane);
  uint32_t bind_stamps(uint32_t lane, const uint64_t* gpu_pre, const uint64_t* gpu_post);
  // Counters of a lane that are not the gather's own: enqueued, node reached, node passed.
  void stamp(uint32_t lane, uint64_t layout::Lane::*counter);
  uint32_t lanes() const { return config_.lanes; }
  bool forked() const { return fork_generation() != opened_in_generation_; }

  std::string info();
  uint32_t selftest(uint32_t rows);

 private:
  static constexpr uint32_t kQueuedMax = 16;

  struct Async {  // asynchronous gathers of one lane
    SerialExecutor executor{kQueuedMax, "rs-lane"};
    std::mutex mutex;
    rs_request results[kQueuedMax * 2]{};
  };
  struct Stamps {
    const uint64_t* gpu_pre = nullptr;
    const uint64_t* gpu_post = nullptr;
  };

  uint32_t refuse(const rs_request& request) const;
  uint32_t run(Lane& lane, rs_request& request);
  void account(const rs_request& request, uint32_t status);
  void tick(uint64_t now);
  std::string answer(const std::string& line);

  const uint32_t opened_in_generation_ = fork_generation();
  Config config_;
  Telemetry telemetry_;
  std::unique_ptr<Catalog> catalog_;
  std::unique_ptr<LaneSet> lanes_;
  Circuit circuit_;
  std::unique_ptr<Switcher> switcher_;
  std::mutex async_mutex_;
  std::unique_ptr<Async> async_[kLanesMax];
  std::mutex binding_mutex_;  // guards bindings and stamps; held by no gather
  std::vector<std::unique_ptr<FlagBinding>> bindings_;
  Stamps stamps_[kLanesMax];
  std::unique_ptr<Guardian> guardian_;
  std::unique_ptr<Control> control_;
};

}  // namespace rs
