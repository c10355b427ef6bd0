// Global row id to slice-local row, for a slice that is a list of head ranges.
#pragma once
#include <cstdint>
#include <vector>

#include "format.h"

namespace rs {

class Ranges {
 public:
  // Throws Failure when ranges overlap, are empty, or are too many.
  explicit Ranges(const std::vector<HeadRange>& ranges);
  Ranges() = default;

  uint64_t rows() const { return rows_; }

  // Local row of a global id, or -1 when the slice does not hold it.
  int64_t local(int64_t id) const {
    int found = -1;
    // Counting instead of searching: no branch depends on the id.
    for (uint32_t k = 0; k < count_; ++k) found += starts_[k] <= id;
    if (found < 0 || id >= ends_[found]) return -1;
    return bases_[found] + (id - starts_[found]);
  }

  uint64_t global(uint64_t local) const {
    int found = -1;
    for (uint32_t k = 0; k < count_; ++k) found += file_bases_[k] <= int64_t(local);
    return uint64_t(file_starts_[found] + (int64_t(local) - file_bases_[found]));
  }

 private:
  uint32_t count_ = 0;
  uint64_t rows_ = 0;
  // Sorted by global id.
  int64_t starts_[kRangesMax]{}, ends_[kRangesMax]{}, bases_[kRangesMax]{};
  // In file order, which is the order of local rows.
  int64_t file_starts_[kRangesMax]{}, file_bases_[kRangesMax]{};
};

}  // namespace rs
