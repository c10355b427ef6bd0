// One table of one layer on disk: where each row is, and whether the bytes read are right.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "format.h"
#include "ranges.h"

namespace rs {

struct RowView {
  const uint8_t* codes;
  const uint8_t* scales;
};

enum class Verify { kFillOnly, kRow, kPage };

// Where codes and scales of a safetensors checkpoint lie; offsets are of the first row.
struct InplaceSpec {
  std::string path;
  std::string scales_path;
  uint32_t layer = 0;
  uint64_t codes_at = 0;
  uint64_t scales_at = 0;
  uint64_t rows = 0;
  RowFormat format;
};

class Table {
 public:
  static std::unique_ptr<Table> open_rws1(const std::string& path, const std::string& replica);
  static std::unique_ptr<Table> open_inplace(const InplaceSpec& spec);
  ~Table();
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  uint32_t layer() const { return layer_; }
  const RowFormat& format() const { return format_; }
  const Ranges& ranges() const { return ranges_; }
  const std::string& path() const { return path_; }
  const std::string& direct_reason() const { return direct_reason_; }
  const std::string& identity() const { return identity_; }
  bool checked() const { return checked_; }
  bool sparse() const { return sparse_; }
  uint64_t rows() const { return ranges_.rows(); }
  uint64_t pages() const { return (rows() + page_rows_ - 1) / page_rows_; }
  // Multiplies instead of dividing; exact below 2^34 rows, and a store has fewer than 2^32.
  uint64_t page_of(uint64_t local) const {
    return uint64_t(static_cast<unsigned __int128>(local) * page_reciprocal_ >> kReciprocalBits);
  }
  uint32_t row_in_page(uint64_t local) const {
    return uint32_t(local - page_of(local) * page_rows_);
  }
  uint32_t page_rows() const { return page_rows_; }

  int fd() const { return fd_; }
  int hedge_fd() const { return replica_fd_ >= 0 ? replica_fd_ : fd_; }

  // The one read that brings a page: aligned for direct I/O.
  uint64_t read_offset(uint64_t page) const { return (data_at_ + page * kUnit) & ~uint64_t(4095); }
  uint32_t read_bytes() const { return read_bytes_; }
  uint32_t expected_bytes(uint64_t page) const;

  RowView row_in_buffer(const uint8_t* buffer, uint64_t local) const;
  // Row inside an image of file bytes [image_from(), image_end()).
  RowView row_in_image(const uint8_t* image, uint64_t local) const;
  uint64_t image_from() const { return data_at_ & ~uint64_t(4095); }
  uint64_t image_end() const { return data_at_ + pages() * kUnit; }

  bool row_ok(const uint8_t* buffer, uint64_t local, Verify verify) const;
  // Whether `bytes` of the image starting at file offset `from` are whole, intact pages.
  bool image_chunk_ok(const uint8_t* bytes, uint64_t from, uint64_t length) const;

 private:
  static constexpr uint64_t kUnit = 4096;  // file bytes from one page to the next
  static constexpr uint32_t kReciprocalBits = 40;
  Table() = default;
  void open_file(const std::string& path);
  void load_scales(const InplaceSpec& spec);
  void refuse_short_file() const;

  uint32_t layer_ = 0;
  RowFormat format_;
  Ranges ranges_;
  void set_page_rows(uint32_t rows) {
    page_rows_ = rows;
    page_reciprocal_ = (uint64_t(1) << kReciprocalBits) / rows + 1;
  }

  uint32_t page_rows_ = 1;
  uint64_t page_reciprocal_ = 0;
  uint32_t row_pitch_ = 0;
  uint32_t read_bytes_ = 4096;
  uint64_t data_at_ = 0;
  uint64_t file_bytes_ = 0;
  int fd_ = -1;
  int replica_fd_ = -1;
  bool checked_ = false;
  bool sparse_ = false;
  std::string path_, direct_reason_, identity_;
  std::vector<uint8_t> scales_;  // resident only when codes and scales are apart
};

// Opens for direct reads, or buffered when the file system refuses them; `reason` says which.
int open_direct(const std::string& path, std::string* reason);
FileHeader read_header(const std::string& path);

}  // namespace rs
