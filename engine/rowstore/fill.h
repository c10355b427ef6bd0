// Fills a resident image of a table with large direct reads and checks every page of it.
#pragma once
#include <atomic>
#include <functional>

#include "memory.h"
#include "table.h"

namespace rs {

struct FillOptions {
  uint32_t threads = 2;
  uint32_t share_percent = 100;  // of the time a thread may spend reading; the rest is left to
                                 // the reads that serve
};

struct FillProgress {
  std::atomic<uint64_t> done_bytes{0};
  std::atomic<uint64_t> bad_chunks{0};
  std::atomic<uint32_t> first_error{0};  // errno, or 0
};

// image holds file bytes [table.image_from(), table.image_end()). Returns RS_OK, RS_IO,
// RS_CORRUPT, or RS_RELEASED when *stop became true.
uint32_t fill_image(const Table& table, uint8_t* image, const FillOptions& options,
                    const std::atomic<bool>& stop, FillProgress& progress);

}  // namespace rs
