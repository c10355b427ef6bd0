// RWS1: one file per layer and rank slice. A header page, then 4 KiB data pages of whole rows.
// A row carries its own check, seeded with its global id, so that a right row in a wrong place
// is as visible as a damaged one; a page carries a trailer for whole-page checks.
#pragma once
#include <cstdint>

namespace rs {

constexpr uint32_t kTrailerMagic = 0x50535752;  // "RWSP"
constexpr uint32_t kRangesMax = 64;
// Of FileHeader::flags: most of the file was never written; a page of zeros is a page of zero rows.
constexpr uint32_t kSparse = 1;

struct RowFormat {
  uint32_t code_bytes = 0;
  uint32_t scale_bytes = 0;

  uint32_t row_bytes() const { return code_bytes + scale_bytes; }
  uint32_t stride() const { return row_bytes() + 4; }
  uint32_t rows_per_page() const { return (4096 - 24) / stride(); }
};

struct PageTrailer {  // the last 24 bytes of a data page
  uint32_t magic;
  uint32_t layer;
  uint64_t first_global_row;
  uint32_t generation;
  uint32_t crc;  // of the page before this field
};
static_assert(sizeof(PageTrailer) == 24);

struct HeadRange {
  uint32_t head;
  uint32_t reserved;
  uint64_t start;  // global row id
  uint64_t count;
};
static_assert(sizeof(HeadRange) == 24);

struct FileHeader {
  char magic[8];  // "RWS1" and four zeros
  uint32_t version;
  uint32_t byte_order;  // 0x01020304 as stored by the writer
  uint32_t layer;
  uint32_t code_type;   // 1 = e4m3fn, 2 = e2m1 (two to a byte)
  uint32_t scale_type;  // 1 = ue8m0
  uint32_t block;       // codes that share a scale
  uint32_t code_bytes;
  uint32_t scale_bytes;
  uint32_t row_stride;
  uint32_t rows_per_page;
  uint64_t rows;
  uint64_t data_offset;
  uint32_t generation;
  uint32_t range_count;
  uint8_t source_digest[32];
  uint8_t manifest_digest[32];
  HeadRange ranges[kRangesMax];
  uint32_t flags;  // kSparse; a reader refuses any other
  uint8_t unused[2416];
  uint32_t crc;  // of the header before this field
};
static_assert(sizeof(FileHeader) == 4096);

uint32_t row_check(const RowFormat& format, const uint8_t* row, uint64_t global_row);
bool row_is_intact(const RowFormat& format, const uint8_t* page, uint32_t row,
                   uint64_t global_row);
bool page_is_ours(const uint8_t* page, uint32_t layer, uint64_t first_global_row);
bool page_is_intact(const uint8_t* page, uint32_t layer, uint64_t first_global_row);
bool page_is_zero(const uint8_t* page);

// One page of `rows` rows whose global ids are given; absent rows are zero.
void encode_page(const RowFormat& format, uint32_t layer, uint32_t generation, const int64_t* ids,
                 uint32_t rows, const uint8_t* codes, const uint8_t* scales, uint8_t* page);

// Row content that is a pure function of (layer, global row): any byte of a generated table can
// be checked without a copy of it.
void formula_row(uint32_t layer, uint64_t global_row, uint32_t row_bytes, uint8_t* out);

}  // namespace rs
