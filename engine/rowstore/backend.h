// Where rows come from. A gather uses one backend from start to end; see switcher.h.
#pragma once
#include <string>

#include "lane.h"

namespace rs {

// What every backend is given; owned by the store and older than any backend.
struct Context {
  const Config& config;
  const Catalog& catalog;
  Telemetry& telemetry;
  LaneSet& lanes;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual uint32_t mode() const = 0;  // layout::MODE_*
  // Fills the output and the result counts; returns an rs_status. Called with the lane claimed;
  // allocates nothing, throws nothing, returns by deadline_ns (legacy alone does not).
  virtual uint32_t gather(Lane& lane, rs_request& request, uint64_t deadline_ns) = 0;
  virtual void hint(const uint32_t*, uint32_t) {}
  virtual std::string describe() const = 0;  // JSON members
  // False when a thread of it is stuck in the kernel: then it must be leaked, not destroyed.
  virtual bool stop() { return true; }
};

// The part of a gather that every backend shares (gather.cpp).

// Splits the request into uniques and duplicates and zeroes padding; RS_BAD_ID stops it.
uint32_t classify(const Context& context, Lane& lane, const rs_request& request);
// Copies each first occurrence to its duplicates.
void fan_out(const Context& context, Lane& lane);
void zero_row(const Context& context, Lane& lane, uint32_t position);
// Copies one row into the output.
inline void copy_row(const RowFormat& format, const Output& out, uint32_t position,
                     const RowView& row) {
  // Constant sizes let the compiler copy the e4m3 row with vector moves.
  if (format.code_bytes == 256 && format.scale_bytes == 8) {
    __builtin_memcpy(out.codes_at(position), row.codes, 256);
    __builtin_memcpy(out.scales_at(position), row.scales, 8);
    return;
  }
  __builtin_memcpy(out.codes_at(position), row.codes, format.code_bytes);
  __builtin_memcpy(out.scales_at(position), row.scales, format.scale_bytes);
}

}  // namespace rs
