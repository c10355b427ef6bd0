#include "memory.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>

#include "common.h"

namespace rs {
namespace {

constexpr uint64_t kHuge = 2ull << 20;
constexpr uint64_t kStep = 64ull << 20;
constexpr uint64_t kUnlimited = UINT64_MAX;

uint64_t read_number(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = kUnlimited;  // "max" and absence both mean: no limit here
  file >> value;
  return file ? value : kUnlimited;
}

uint64_t status_field(const std::string& path, const std::string& key, int base) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.rfind(key, 0) == 0) return std::stoull(line.substr(key.size()), nullptr, base);
  return 0;
}

bool may_exceed_memlock() {
  constexpr uint64_t kCapIpcLock = 1ull << 14;
  return status_field("/proc/self/status", "CapEff:", 16) & kCapIpcLock;
}

// Free bytes in the tightest cgroup from this process up to the root.
uint64_t cgroup_free() {
  std::ifstream file("/proc/self/cgroup");
  std::string path;
  for (std::string line; std::getline(file, line);)
    if (line.rfind("0::", 0) == 0) path = line.substr(3);
  uint64_t least = kUnlimited;
  for (int depth = 0; depth < 32 && path.size() > 1; ++depth) {
    const std::string folder = "/sys/fs/cgroup" + path;
    const uint64_t limit = read_number(folder + "/memory.max");
    const uint64_t used = read_number(folder + "/memory.current");
    if (limit != kUnlimited && used != kUnlimited) least = std::min(least, limit - std::min(limit, used));
    path.resize(path.rfind('/'));
  }
  return least;
}

std::string mib(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

void* map_anonymous(uint64_t bytes, int extra) {
  return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | extra, -1, 0);
}

}  // namespace

Region Region::anonymous(uint64_t bytes, const std::string& hugepages) {
  Region region;
  region.bytes_ = (std::max<uint64_t>(bytes, 1) + kHuge - 1) & ~(kHuge - 1);
  void* p = MAP_FAILED;
  if (hugepages == "hugetlb" || hugepages == "auto") {
    p = map_anonymous(region.bytes_, MAP_HUGETLB);
    region.kind_ = "hugetlb";
  }
  if (p == MAP_FAILED) {
    if (hugepages == "hugetlb")
      throw Failure(RS_NO_MEMORY, "no reserved huge pages for " + mib(region.bytes_) +
                                      "; raise vm.nr_hugepages or set hugepages=auto");
    p = map_anonymous(region.bytes_, MAP_NORESERVE);
    if (p == MAP_FAILED) throw Failure(RS_NO_MEMORY, "mapping " + mib(region.bytes_) + ": " + errno_text(errno));
    const bool thp = hugepages != "no" && madvise(p, region.bytes_, MADV_HUGEPAGE) == 0;
    region.kind_ = thp ? "thp" : "small pages";
  }
  region.data_ = static_cast<uint8_t*>(p);
  return region;
}

Region Region::shared(int fd, uint64_t bytes) {
  Region region;
  region.bytes_ = bytes;
  void* p = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (p == MAP_FAILED)
    throw Failure(RS_NO_MEMORY, "mapping the keeper's table: " + errno_text(errno));
  madvise(p, bytes, MADV_HUGEPAGE);
  region.data_ = static_cast<uint8_t*>(p);
  region.kind_ = "keeper";
  return region;
}

Region::~Region() {
  // One munmap of tens of GiB would hold the address-space lock against every other thread.
  for (uint64_t at = 0; at < bytes_; at += kStep)
    munmap(data_ + at, std::min(kStep, bytes_ - at));
}

void Region::swap(Region& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(kind_, other.kind_);
}

bool Region::populate(uint64_t from, uint64_t length, bool writable) const {
  const uint64_t begin = from & ~(kPage - 1);
  const uint64_t end = std::min(bytes_, (from + length + kPage - 1) & ~(kPage - 1));
  for (int tries = 0; tries < 8; ++tries) {
    const int advice = writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
    if (madvise(data_ + begin, end - begin, advice) == 0) return true;
    if (errno == EINTR || errno == EAGAIN) continue;
    if (errno != EINVAL) return false;
    break;  // a kernel before 5.14: touch the pages instead
  }
  for (uint64_t at = begin; at < end; at += kPage) {
    volatile uint8_t* p = data_ + at;
    if (writable) *p = *p;
    else (void)*p;
  }
  return true;
}

bool Region::lock(std::string* reason) const {
  for (uint64_t at = 0; at < bytes_; at += kStep) {
    if (mlock(data_ + at, std::min(kStep, bytes_ - at)) == 0) continue;
    *reason = "mlock: " + errno_text(errno) + "; raise RLIMIT_MEMLOCK (LimitMEMLOCK=infinity)";
    return false;
  }
  return true;
}

void Region::dont_fork() const { madvise(data_, bytes_, MADV_DONTFORK); }

Fit ram_fit(uint64_t bytes, uint64_t reserve) {
  const uint64_t available = status_field("/proc/meminfo", "MemAvailable:", 10) << 10;
  if (available < bytes + reserve)
    return {false, "the table needs " + mib(bytes) + " and " + mib(reserve) +
                       " must stay free, but " + mib(available) + " are available"};
  const uint64_t in_group = cgroup_free();
  if (in_group != kUnlimited && in_group < bytes + reserve)
    return {false, "the table needs " + mib(bytes) + " and " + mib(reserve) +
                       " must stay free, but the cgroup has " + mib(in_group) + " left"};
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < bytes && !may_exceed_memlock())
    return {false, "RLIMIT_MEMLOCK is " + mib(limit.rlim_cur) + " and the table needs " +
                       mib(bytes) + "; raise it (LimitMEMLOCK=infinity, --ulimit memlock=-1)"};
  return {true, mib(available) + " available for " + mib(bytes) + " and a reserve of " +
                    mib(reserve)};
}

}  // namespace rs
