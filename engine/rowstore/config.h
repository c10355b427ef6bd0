// Configuration of one store: `key=value` lines, unknown keys are errors.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "table.h"

namespace rs {

struct Config {
  std::string mode = "auto";            // auto nvme ram legacy
  std::vector<std::string> tables;      // RWS1 files, one per layer
  std::vector<std::string> replicas;    // copies for hedged reads, in the order of tables
  std::vector<InplaceSpec> inplace;
  std::string io = "auto";              // auto uring aio pool inline
  uint32_t depth = 64;
  uint32_t owners = 0;                  // 0: auto; the inline engine has none
  uint32_t lanes = 16;
  uint32_t lane_rows = 65536;
  uint32_t pool_threads = 16;
  uint64_t cache_bytes = 64ull << 20;
  std::string cache_policy = "auto";    // auto s3 clk3 direct none
  bool prefault = true;
  std::string hugepages = "auto";       // auto hugetlb thp no
  uint32_t soft_ms = 20;
  uint32_t warn_ms = 250;
  uint32_t hard_ms = 2000;
  uint32_t hard_prefill_ms = 10000;
  uint32_t prefill_rows = 4096;         // gathers of at least this many rows are prefill
  uint32_t trip_hard = 3;
  uint32_t trip_window_ms = 60000;
  std::string on_deadline = "fail";     // fail zero wait
  uint32_t hint_depth = 16;
  std::string verify = "row";           // page row fill_only
  uint64_t reserve_bytes = 2ull << 30;
  uint32_t fill_threads = 2;
  uint32_t fill_share_percent = 30;     // of device time, while serving
  uint32_t grace_ms = 10000;            // a replaced backend is kept this long
  std::string keeper = "none";          // socket path
  std::string telemetry = "off";        // page path
  std::string control = "off";          // socket path
  uint32_t rank = 0;
  uint32_t world = 1;

  // Throws Failure with the line at fault and the nearest known key.
  static Config parse(const std::string& text);
  std::string to_json() const;
  Verify verify_level() const;
  uint32_t policy() const;
};

std::string json_string(const std::string& text);

}  // namespace rs
