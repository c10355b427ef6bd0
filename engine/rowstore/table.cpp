#include "table.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "common.h"
#include "crc32c.h"
#include "inject.h"

namespace rs {
namespace {

std::string hex(const uint8_t* bytes, size_t count) {
  static const char digits[] = "0123456789abcdef";
  std::string out;
  for (size_t i = 0; i < count; ++i) {
    out += digits[bytes[i] >> 4];
    out += digits[bytes[i] & 15];
  }
  return out;
}

void read_fully(int fd, void* out, uint64_t bytes, uint64_t at, const std::string& path) {
  uint64_t done = 0;
  while (done < bytes) {
    const ssize_t n = pread(fd, static_cast<char*>(out) + done, bytes - done, off_t(at + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      throw Failure(RS_IO, path + ": cannot read " + std::to_string(bytes) + " bytes at " +
                               std::to_string(at) + ": " +
                               (n < 0 ? errno_text(errno) : "the file is too short"));
    done += uint64_t(n);
  }
}

uint64_t size_of(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 ? uint64_t(info.st_size) : 0;
}

}  // namespace

int open_direct(const std::string& path, std::string* reason) {
  int fd = inject::refuses("direct") ? -1 : open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (fd >= 0) {
    *reason = "direct reads";
    return fd;
  }
  const int refused = errno;
  fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    throw Failure(RS_CONFIG, path + ": " + errno_text(errno) + "; check the path and its mode");
  posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
  *reason = "buffered reads: direct I/O was refused (" + errno_text(refused) + ")";
  return fd;
}

FileHeader read_header(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    throw Failure(RS_CONFIG, path + ": " + errno_text(errno) + "; check the path and its mode");
  FileHeader header;
  try {
    read_fully(fd, &header, sizeof header, 0, path);
  } catch (...) {
    close(fd);
    throw;
  }
  close(fd);
  const std::string advice = "; repack it with `rowstore pack`";
  if (memcmp(header.magic, "RWS1\0\0\0\0", 8) != 0)
    throw Failure(RS_CONFIG, path + " is not an RWS1 file" + advice);
  if (header.crc != crc32c(&header, sizeof header - 4, 0))
    throw Failure(RS_CORRUPT, path + ": the header check fails" + advice);
  if (header.version != 1 || header.byte_order != 0x01020304)
    throw Failure(RS_CONFIG, path + ": version or byte order is not supported" + advice);
  if (header.flags & ~kSparse)
    throw Failure(RS_CONFIG, path + ": its flags are of a later version" + advice);
  return header;
}

void Table::open_file(const std::string& path) {
  path_ = path;
  fd_ = open_direct(path, &direct_reason_);
  file_bytes_ = size_of(fd_);
}

void Table::refuse_short_file() const {
  const uint64_t needed = checked_ ? image_end() : data_at_ + rows() * format_.code_bytes;
  if (file_bytes_ < needed)
    throw Failure(RS_CORRUPT, path_ + " has " + std::to_string(file_bytes_) + " bytes and needs " +
                                  std::to_string(needed) + ": it was truncated; stage it again");
}

std::unique_ptr<Table> Table::open_rws1(const std::string& path, const std::string& replica) {
  const FileHeader header = read_header(path);
  std::unique_ptr<Table> table(new Table);
  table->layer_ = header.layer;
  table->format_ = {header.code_bytes, header.scale_bytes};
  if (header.row_stride != table->format_.stride() || header.range_count > kRangesMax ||
      header.rows_per_page != table->format_.rows_per_page() || header.rows_per_page == 0 ||
      header.code_bytes % 8 || header.scale_bytes % 8)
    throw Failure(RS_CONFIG, path + ": the geometry in the header is inconsistent");
  table->ranges_ =
      Ranges(std::vector<HeadRange>(header.ranges, header.ranges + header.range_count));
  table->set_page_rows(header.rows_per_page);
  table->row_pitch_ = header.row_stride;
  table->data_at_ = header.data_offset;
  table->checked_ = true;
  table->sparse_ = header.flags & kSparse;
  table->identity_ = hex(header.manifest_digest, 32);
  if (header.rows != table->rows() || header.data_offset % kPage)
    throw Failure(RS_CONFIG, path + ": row count or data offset disagrees with the slice");
  table->open_file(path);
  table->refuse_short_file();
  if (!replica.empty()) {
    if (read_header(replica).crc != header.crc)
      throw Failure(RS_CONFIG, replica + " is not a copy of " + path);
    std::string reason;
    table->replica_fd_ = open_direct(replica, &reason);
  }
  return table;
}

std::unique_ptr<Table> Table::open_inplace(const InplaceSpec& spec) {
  std::unique_ptr<Table> table(new Table);
  if (spec.format.code_bytes == 0 || kUnit % spec.format.code_bytes != 0 ||
      spec.format.scale_bytes % 8 || spec.codes_at % 8)
    throw Failure(RS_CONFIG, spec.path + ": codes of this width cannot be read in place");
  table->layer_ = spec.layer;
  table->format_ = spec.format;
  table->ranges_ = Ranges({HeadRange{0, 0, 0, spec.rows}});
  table->set_page_rows(uint32_t(kUnit / spec.format.code_bytes));
  table->row_pitch_ = spec.format.code_bytes;
  table->data_at_ = spec.codes_at;
  table->read_bytes_ = spec.codes_at % kPage ? 2 * kPage : kPage;
  table->identity_ = "inplace:" + spec.path;
  table->open_file(spec.path);
  table->refuse_short_file();
  table->load_scales(spec);
  return table;
}

void Table::load_scales(const InplaceSpec& spec) {
  const int fd = open(spec.scales_path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw Failure(RS_CONFIG, spec.scales_path + ": " + errno_text(errno));
  scales_.resize(spec.rows * format_.scale_bytes);
  try {
    read_fully(fd, scales_.data(), scales_.size(), spec.scales_at, spec.scales_path);
  } catch (...) {
    close(fd);
    throw;
  }
  close(fd);
}

Table::~Table() {
  if (fd_ >= 0) close(fd_);
  if (replica_fd_ >= 0) close(replica_fd_);
}

uint32_t Table::expected_bytes(uint64_t page) const {
  const uint64_t left = file_bytes_ - std::min(file_bytes_, read_offset(page));
  return uint32_t(std::min<uint64_t>(read_bytes_, left));
}

RowView Table::row_in_buffer(const uint8_t* buffer, uint64_t local) const {
  const uint64_t skew = data_at_ & 4095;
  const uint8_t* codes = buffer + skew + uint64_t(row_in_page(local)) * row_pitch_;
  return {codes, checked_ ? codes + format_.code_bytes
                          : scales_.data() + local * format_.scale_bytes};
}

RowView Table::row_in_image(const uint8_t* image, uint64_t local) const {
  return row_in_buffer(image + page_of(local) * kUnit, local);
}

bool Table::row_ok(const uint8_t* buffer, uint64_t local, Verify verify) const {
  if (!checked_) return true;  // a checkpoint carries no row checks
  const uint64_t first = ranges_.global(local - row_in_page(local));
  const bool good =
      verify == Verify::kPage
          ? page_is_intact(buffer, layer_, first)
          : page_is_ours(buffer, layer_, first) &&
                (verify == Verify::kFillOnly ||
                 row_is_intact(format_, buffer, row_in_page(local), ranges_.global(local)));
  return good || (sparse_ && page_is_zero(buffer));
}

bool Table::image_chunk_ok(const uint8_t* bytes, uint64_t from, uint64_t length) const {
  if (!checked_) return true;
  uint64_t page = (from - image_from()) / kUnit;
  for (uint64_t at = 0; at < length; at += kUnit, ++page)
    if (!page_is_intact(bytes + at, layer_, ranges_.global(page * page_rows_)) &&
        !(sparse_ && page_is_zero(bytes + at)))
      return false;
  return true;
}

}  // namespace rs
