#include "ranges.h"

#include <algorithm>

#include "common.h"

namespace rs {

Ranges::Ranges(const std::vector<HeadRange>& ranges) {
  if (ranges.empty() || ranges.size() > kRangesMax)
    throw Failure(RS_CONFIG, "a slice needs 1 to 64 head ranges; repack it with `rowstore pack`");
  count_ = uint32_t(ranges.size());
  struct Entry {
    int64_t start, end, base;
  };
  std::vector<Entry> sorted;
  for (uint32_t k = 0; k < count_; ++k) {
    const HeadRange& r = ranges[k];
    if (r.count == 0 || r.start + r.count > uint64_t(INT64_MAX))
      throw Failure(RS_CONFIG, "head range " + std::to_string(k) + " is empty or too large");
    file_starts_[k] = int64_t(r.start);
    file_bases_[k] = int64_t(rows_);
    sorted.push_back({int64_t(r.start), int64_t(r.start + r.count), int64_t(rows_)});
    rows_ += r.count;
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const Entry& a, const Entry& b) { return a.start < b.start; });
  for (uint32_t k = 0; k < count_; ++k) {
    if (k > 0 && sorted[k].start < sorted[k - 1].end)
      throw Failure(RS_CONFIG, "head ranges overlap at row " + std::to_string(sorted[k].start));
    starts_[k] = sorted[k].start;
    ends_[k] = sorted[k].end;
    bases_[k] = sorted[k].base;
  }
}

}  // namespace rs
