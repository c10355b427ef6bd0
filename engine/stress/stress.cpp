// Everything at once, for the sanitizers: lanes of every engine, mode switches, hints, releases,
// injected delays and errors, and a reader of the telemetry page. Every row that arrives with
// status ok is compared with the formula. Exit status 0 only when no byte was wrong.
//
// usage: stress DIRECTORY SECONDS
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "../rowstore/common.h"
#include "../rowstore/crc32c.h"
#include "../rowstore/format.h"
#include "../rowstore/telemetry_layout.h"

namespace {

constexpr uint32_t kLayer = 7;
constexpr uint32_t kRows = 6000;
constexpr uint32_t kRowBytes = 264;
constexpr uint32_t kLanes = 3;
constexpr uint64_t kFirst = 1ull << 33;
constexpr uint32_t kHoleEvery = 8;  // pages of the sparse file, of which one is never written

std::atomic<uint64_t> gathers{0}, wrong{0}, refused{0}, switches{0};
std::atomic<bool> stop{false};

bool in_hole(uint64_t row) {
  return row / rs::RowFormat{256, 8}.rows_per_page() % kHoleEvery == kHoleEvery - 1;
}

void write_table(const std::string& path) {
  const rs::RowFormat format{256, 8};
  const uint32_t per_page = format.rows_per_page(), pages = (kRows + per_page - 1) / per_page;
  std::vector<uint8_t> file((pages + 1) * rs::kPage);
  for (uint32_t page = 0; page < pages; ++page) {
    if (in_hole(uint64_t(page) * per_page)) continue;
    std::vector<int64_t> ids;
    std::vector<uint8_t> codes, scales, row(kRowBytes);
    for (uint32_t r = page * per_page; r < kRows && ids.size() < per_page; ++r) {
      ids.push_back(int64_t(kFirst + r));
      rs::formula_row(kLayer, kFirst + r, kRowBytes, row.data());
      codes.insert(codes.end(), row.begin(), row.begin() + 256);
      scales.insert(scales.end(), row.begin() + 256, row.end());
    }
    rs::encode_page(format, kLayer, 1, ids.data(), uint32_t(ids.size()), codes.data(),
                    scales.data(), file.data() + (page + 1) * rs::kPage);
  }
  auto* header = reinterpret_cast<rs::FileHeader*>(file.data());
  memcpy(header->magic, "RWS1", 4);
  header->version = 1;
  header->byte_order = 0x01020304;
  header->layer = kLayer;
  header->code_type = header->scale_type = 1;
  header->block = 32;
  header->code_bytes = 256;
  header->scale_bytes = 8;
  header->row_stride = format.stride();
  header->rows_per_page = per_page;
  header->rows = kRows;
  header->data_offset = rs::kPage;
  header->generation = header->range_count = 1;
  header->ranges[0] = {0, 0, kFirst, kRows};
  header->flags = rs::kSparse;
  header->crc = rs::crc32c(header, rs::kPage - 4, 0);
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (fd < 0 || write(fd, file.data(), file.size()) != ssize_t(file.size()) || fsync(fd) != 0)
    throw rs::Failure(RS_IO, "cannot write " + path);
  close(fd);
}

void gather_loop(rs_store* store, uint32_t lane) {
  std::mt19937_64 draw(lane + 1);
  std::vector<int64_t> ids(256);
  std::vector<uint8_t> out(ids.size() * kRowBytes), row(kRowBytes);
  while (!stop.load()) {
    rs_request request{};
    request.count = uint32_t(draw() % ids.size());
    for (uint32_t k = 0; k < request.count; ++k)
      ids[k] = draw() % 16 == 0 ? -1 : int64_t(kFirst + draw() % (draw() % 2 ? kRows : 200));
    request.ids = ids.data();
    request.codes = out.data();
    request.layer = kLayer;
    request.lane = lane;
    gathers.fetch_add(1);
    if (rs_gather(store, &request) != RS_OK) {
      refused.fetch_add(1);
      continue;
    }
    for (uint32_t k = 0; k < request.count; ++k) {
      if (ids[k] < 0 || in_hole(uint64_t(ids[k]) - kFirst)) memset(row.data(), 0, kRowBytes);
      else rs::formula_row(kLayer, uint64_t(ids[k]), kRowBytes, row.data());
      if (memcmp(row.data(), out.data() + k * kRowBytes, kRowBytes) != 0) wrong.fetch_add(1);
    }
  }
}

void disturb_loop(rs_store* store, const std::string& page_path) {
  std::mt19937_64 draw(99);
  const int fd = open(page_path.c_str(), O_RDONLY);
  const auto* page = static_cast<const rs::layout::Page*>(
      mmap(nullptr, rs::layout::kPageBytes, PROT_READ, MAP_SHARED, fd, 0));
  close(fd);
  const char* const faults[] = {"fault=delay ms=30 count=2", "fault=eio count=1",
                                "fault=torn count=1", "fault=short count=1"};
  uint64_t sum = 0;
  std::atomic<uint32_t> never{0};
  while (!stop.load()) {
    int64_t ids[32];
    for (auto& id : ids) id = int64_t(kFirst + draw() % kRows);
    rs_hint(store, kLayer, ids, 32);
    rs_inject(store, "clear");
    rs_inject(store, faults[draw() % 4]);
    if (draw() % 8 == 0) rs_lane_release(store, uint32_t(draw() % kLanes), RS_RELEASED);
    for (const auto& lane : page->lane) sum += rs::load_relaxed(lane.state_ns);
    if (rs_mode_set(store, draw() % 2 ? "ram" : "nvme") == RS_OK) switches.fetch_add(1);
    rs::futex_wait(never, 0, 5 * rs::kMs);
  }
  munmap(const_cast<rs::layout::Page*>(page), rs::layout::kPageBytes);
  if (sum == 0) wrong.fetch_add(1);
}

void round_of(const std::string& folder, const char* io, double seconds) {
  const std::string page = folder + "/page";
  const std::string config =
      "mode=nvme\ntable=" + folder + "/stress.rws\nio=" + io + "\nlanes=3\ndepth=8\n" +
      "lane_rows=256\ncache_bytes=120000\nreserve_bytes=0\nsoft_ms=5\nwarn_ms=20\nhard_ms=2000\n" +
      "grace_ms=20\nfill_share_percent=100\npool_threads=4\ntelemetry=" + page;
  rs_store* store = nullptr;
  if (rs_open(config.c_str(), &store) != RS_OK)
    throw rs::Failure(RS_CONFIG, std::string(io) + ": " + rs_last_error());
  stop.store(false);
  std::vector<std::thread> threads;
  for (uint32_t lane = 0; lane < kLanes; ++lane) threads.emplace_back(gather_loop, store, lane);
  threads.emplace_back(disturb_loop, store, page);
  const uint64_t until = rs::now_ns() + uint64_t(seconds * 1e9);
  std::atomic<uint32_t> never{0};
  while (rs::now_ns() < until) rs::futex_wait(never, 0, 50 * rs::kMs);
  stop.store(true);
  for (auto& thread : threads) thread.join();
  rs_inject(store, "clear");
  rs_close(store);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: stress DIRECTORY SECONDS\n");
    return 2;
  }
  const std::string folder = argv[1];
  write_table(folder + "/stress.rws");
  for (const char* io : {"inline", "uring", "aio", "pool"})
    round_of(folder, io, std::stod(argv[2]) / 4);
  printf("gathers %lu, refused by injected faults %lu, switches asked %lu, wrong rows %lu\n",
         gathers.load(), refused.load(), switches.load(), wrong.load());
  return wrong.load() == 0 && gathers.load() > 100 && gathers.load() > 4 * refused.load() ? 0 : 1;
}
