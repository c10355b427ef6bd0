// Faults for tests and experiments. Compiled in only with RS_INJECT; elsewhere every hook is an
// empty inline function, so that the serving library cannot be told to misbehave.
//
// Spec: `fault=delay|eio|short|torn|wrong|lost|stall [offset=BYTES] [count=N] [skip=N] [ms=N]`,
// `refuse=uring|aio|direct`, or `clear`. Without an offset every read matches.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "io_engine.h"

namespace rs::inject {

#if defined(RS_INJECT)

enum class Fault { kNone, kDelay, kEio, kShort, kTorn, kWrong, kLost };
struct Hit {
  Fault fault = Fault::kNone;
  uint64_t delay_ns = 0;
};

void apply(const std::string& spec);  // throws Failure
bool refuses(const char* what);
Hit match(uint64_t offset);
std::unique_ptr<IoEngine> wrap(std::unique_ptr<IoEngine> engine);

#else

inline bool refuses(const char*) { return false; }
inline std::unique_ptr<IoEngine> wrap(std::unique_ptr<IoEngine> engine) { return engine; }

#endif

// What `legacy` meets before a blocking read: sleeps through a stall or delay unless *release
// becomes non-zero. Returns 0, or a negative errno.
int before_blocking_read(uint64_t offset, const std::atomic<uint32_t>& release);

}  // namespace rs::inject
