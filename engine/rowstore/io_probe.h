// Chooses the I/O engine: tried in order, each proved by reading a known page in time.
#pragma once
#include <string>

#include "catalog.h"
#include "driver.h"

namespace rs {

struct IoChoice {
  EngineMaker make;
  uint32_t kind;       // layout::ENGINE_*
  bool inline_lanes;   // lanes drive their own engines; no owner thread
  std::string reason;  // why this one, and why not the ones before it
};

// Throws Failure when no engine works.
IoChoice choose_io(const Config& config, const Catalog& catalog);

}  // namespace rs
