#include <string.h>

#include "backend.h"

namespace rs {

uint32_t classify(const Context& context, Lane& lane, const rs_request& request) {
  uint32_t base = 0;
  const Table* table = context.catalog.of_layer(request.layer, &base);
  if (!table) return RS_BAD_ID;
  lane.unique_count = lane.duplicate_count = 0;
  lane.dedupe.start(request.count);
  for (uint32_t i = 0; i < request.count; ++i) {
    const int64_t id = request.ids[i];
    if (id < 0) {
      zero_row(context, lane, i);
      continue;
    }
    const int64_t local = table->ranges().local(id);
    if (local < 0) return RS_BAD_ID;
    const uint32_t row = base + uint32_t(local);
    const uint32_t first = lane.dedupe.first(row, i);
    if (first == i) lane.uniques[lane.unique_count++] = {row, i};
    else lane.duplicates[lane.duplicate_count++] = {first, i};
  }
  return RS_OK;
}

void fan_out(const Context& context, Lane& lane) {
  const RowFormat& format = context.catalog.format();
  for (uint32_t k = 0; k < lane.duplicate_count; ++k) {
    const RowAt duplicate = lane.duplicates[k];
    copy_row(format, lane.out, duplicate.position,
             {lane.out.codes_at(duplicate.row), lane.out.scales_at(duplicate.row)});
  }
}

void zero_row(const Context& context, Lane& lane, uint32_t position) {
  memset(lane.out.codes_at(position), 0, context.catalog.format().code_bytes);
  memset(lane.out.scales_at(position), 0, context.catalog.format().scale_bytes);
}

}  // namespace rs
