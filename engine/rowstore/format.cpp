#include "format.h"

#include <cstring>

#include "common.h"
#include "crc32c.h"

namespace rs {
namespace {

constexpr uint32_t kTrailerAt = 4096 - sizeof(PageTrailer);
constexpr uint32_t kCrcAt = 4096 - 4;

}  // namespace

uint32_t row_check(const RowFormat& format, const uint8_t* row, uint64_t global_row) {
  return crc32c(&global_row, sizeof global_row, crc32c(row, format.row_bytes(), 0));
}

bool row_is_intact(const RowFormat& format, const uint8_t* page, uint32_t row,
                   uint64_t global_row) {
  const uint8_t* at = page + row * format.stride();
  uint32_t stored;
  memcpy(&stored, at + format.row_bytes(), 4);
  return stored == row_check(format, at, global_row);
}

bool page_is_ours(const uint8_t* page, uint32_t layer, uint64_t first_global_row) {
  PageTrailer trailer;
  memcpy(&trailer, page + kTrailerAt, sizeof trailer);
  return trailer.magic == kTrailerMagic && trailer.layer == layer &&
         trailer.first_global_row == first_global_row;
}

bool page_is_intact(const uint8_t* page, uint32_t layer, uint64_t first_global_row) {
  uint32_t stored;
  memcpy(&stored, page + kCrcAt, 4);
  return page_is_ours(page, layer, first_global_row) && stored == crc32c(page, kCrcAt, 0);
}

bool page_is_zero(const uint8_t* page) {
  return page[0] == 0 && memcmp(page, page + 1, kPage - 1) == 0;
}

void encode_page(const RowFormat& format, uint32_t layer, uint32_t generation, const int64_t* ids,
                 uint32_t rows, const uint8_t* codes, const uint8_t* scales, uint8_t* page) {
  memset(page, 0, kPage);
  for (uint32_t r = 0; r < rows; ++r) {
    uint8_t* at = page + r * format.stride();
    memcpy(at, codes + size_t(r) * format.code_bytes, format.code_bytes);
    memcpy(at + format.code_bytes, scales + size_t(r) * format.scale_bytes, format.scale_bytes);
    const uint32_t check = row_check(format, at, uint64_t(ids[r]));
    memcpy(at + format.row_bytes(), &check, 4);
  }
  PageTrailer trailer{kTrailerMagic, layer, uint64_t(ids[0]), generation, 0};
  memcpy(page + kTrailerAt, &trailer, sizeof trailer);
  const uint32_t crc = crc32c(page, kCrcAt, 0);
  memcpy(page + kCrcAt, &crc, 4);
}

void formula_row(uint32_t layer, uint64_t global_row, uint32_t row_bytes, uint8_t* out) {
  const uint64_t seed = mix64(global_row + (uint64_t(layer) << 56) + 0x9e3779b97f4a7c15ull);
  for (uint32_t word = 0; word * 8 < row_bytes; ++word) {
    const uint64_t value = mix64(seed + word * 0x9e3779b97f4a7c15ull);
    memcpy(out + word * 8, &value, 8);
  }
}

}  // namespace rs
