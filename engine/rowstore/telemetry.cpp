#include "telemetry.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace rs {
namespace {

uint64_t hash_text(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (const char c : text) hash = (hash ^ uint8_t(c)) * 0x100000001b3ull;
  return hash;
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Field 22 of stat; the command in field 2 may hold blanks, so count from its closing bracket.
uint64_t process_start_ticks() {
  const std::string line = first_line("/proc/self/stat");
  std::stringstream rest(line.substr(line.rfind(')') + 2));
  std::string word;
  for (int field = 3; field <= 22; ++field) rest >> word;
  return std::stoull(word);
}

void* map_page(const std::string& path) {
  if (path == "off")
    return mmap(nullptr, layout::kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                -1, 0);
  // A fresh file replaces the page of a dead process, which its readers may still have open.
  unlink(path.c_str());
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0 || ftruncate(fd, layout::kPageBytes) != 0) {
    const std::string why = errno_text(errno);
    if (fd >= 0) close(fd);
    throw Failure(RS_CONFIG, "telemetry page " + path + ": " + why +
                                 "; the directory must exist and be writable");
  }
  void* p = mmap(nullptr, layout::kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  return p;
}

}  // namespace

Telemetry::Telemetry(const std::string& path, uint32_t rank, uint32_t world) : on_(path != "off") {
  void* p = map_page(path);
  if (p == MAP_FAILED) throw Failure(RS_NO_MEMORY, "mapping the telemetry page failed");
  madvise(p, layout::kPageBytes, MADV_DONTFORK);  // a child must not speak for its parent
  page_ = static_cast<layout::Page*>(p);
  fill_header(rank, world);
}

Telemetry::~Telemetry() { munmap(page_, layout::kPageBytes); }

void Telemetry::fill_header(uint32_t rank, uint32_t world) {
  layout::Header& h = page_->header;
  h.layout_version = layout::kVersion;
  h.total_bytes = layout::kPageBytes;
  h.pid = uint32_t(getpid());
  h.rank = rank;
  h.world = world;
  h.clock = CLOCK_MONOTONIC;
  h.process_start_ticks = process_start_ticks();
  h.boot_id_hash = hash_text(first_line("/proc/sys/kernel/random/boot_id"));
  h.host_id = hash_text(first_line("/etc/machine-id"));
  h.created_ns = now_ns();
  h.heartbeat_ns = h.created_ns;
  // Last, so that a reader never sees a valid page with an empty header.
  __atomic_store_n(&h.magic, layout::kMagic, __ATOMIC_RELEASE);
}

void Telemetry::observe(uint32_t histogram, uint64_t ns) {
  if (!on_) return;
  uint32_t bucket = 0;
  if (ns >= 100) {
    const uint64_t units = ns / 100;
    const uint32_t octave = 63 - uint32_t(__builtin_clzll(units));
    const bool upper_half = octave > 0 && (units >> (octave - 1) & 1);
    bucket = std::min(63u, octave * 2 + upper_half);
  }
  add_relaxed(page_->histogram[histogram].bucket[bucket], uint64_t(1));
}

void Telemetry::event(uint32_t code, uint32_t lane, uint64_t arg0, uint64_t arg1) {
  if (!on_) return;
  const uint64_t n = __atomic_fetch_add(&page_->counters.events_total, 1, __ATOMIC_RELAXED);
  layout::Event& e = page_->event[n % 256];
  store_relaxed(e.code, code);
  store_relaxed(e.lane, lane);
  store_relaxed(e.arg0, arg0);
  store_relaxed(e.arg1, arg1);
  __atomic_store_n(&e.ns, now_ns(), __ATOMIC_RELEASE);
}

void Telemetry::heartbeat(uint64_t now) {
  store_relaxed(page_->header.heartbeat_ns, now);
  add_relaxed(page_->header.heartbeat_seq, uint64_t(1));
}

int Telemetry::list_read(uint64_t page, uint64_t start_ns, uint32_t lane, uint32_t tries,
                         uint32_t source) {
  if (!on_) return -1;
  for (int probe = 0; probe < 8; ++probe) {
    // Two threads may begin at one entry: it is only where the search starts.
    const uint32_t next = next_entry_.load(std::memory_order_relaxed);
    next_entry_.store(next + 1, std::memory_order_relaxed);
    const uint32_t at = next % 256;
    layout::Inflight& entry = page_->inflight[at];
    uint32_t free = layout::INFLIGHT_FREE;
    if (!__atomic_compare_exchange_n(&entry.state, &free, layout::INFLIGHT_READING, false,
                                     __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
      continue;
    store_relaxed(entry.page, page);
    store_relaxed(entry.lane, lane);
    store_relaxed(entry.tries, uint16_t(tries));
    store_relaxed(entry.source, uint16_t(source));
    store_relaxed(entry.start_ns, start_ns);
    return int(at);
  }
  return -1;
}

void Telemetry::unlist_read(int entry) {
  if (entry < 0) return;
  store_relaxed(page_->inflight[entry].start_ns, uint64_t(0));
  __atomic_store_n(&page_->inflight[entry].state, layout::INFLIGHT_FREE, __ATOMIC_RELEASE);
}

void LaneRecord::enter(uint32_t layer, uint32_t rows, uint64_t now, uint64_t deadline_ns,
                       uint64_t tag) {
  if (!on_) return;
  open();
  store_relaxed(lane_.owner_tid, thread_id());
  store_relaxed(lane_.layer, uint8_t(layer));
  store_relaxed(lane_.state, uint8_t(layout::LANE_CHECK));
  store_relaxed(lane_.enter, lane_.enter + 1);
  store_relaxed(lane_.enter_ns, now);
  store_relaxed(lane_.state_ns, now);
  store_relaxed(lane_.rows, rows);
  store_relaxed(lane_.rows_done, 0u);
  store_relaxed(lane_.misses, 0u);
  store_relaxed(lane_.pending, 0u);
  store_relaxed(lane_.deadline_ns, deadline_ns);
  store_relaxed(lane_.request_tag, tag);
  close();
}

void LaneRecord::state(uint32_t state, uint64_t now) {
  if (!on_) return;
  open();
  store_relaxed(lane_.state, uint8_t(state));
  store_relaxed(lane_.state_ns, now);
  close();
}

void LaneRecord::misses(uint32_t misses) {
  if (!on_) return;
  store_relaxed(lane_.misses, misses);
  progress(misses);
}

void LaneRecord::progress(uint32_t pending) {
  if (!on_) return;
  store_relaxed(lane_.pending, pending);
  store_relaxed(lane_.rows_done, lane_.rows - std::min(lane_.rows, pending));
}

void LaneRecord::exit(uint32_t state, uint32_t error, uint64_t now) {
  if (!on_) return;
  open();
  store_relaxed(lane_.state, uint8_t(state));
  store_relaxed(lane_.state_ns, now);
  store_relaxed(lane_.last_error, error);
  store_relaxed(lane_.pending, 0u);
  store_relaxed(lane_.exit, lane_.exit + 1);
  close();
}

}  // namespace rs
