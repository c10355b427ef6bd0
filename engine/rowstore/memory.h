// Large mappings: huge pages where they can be had, prefault that reports errors, release in
// steps so that the address-space lock is never held for long.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>

namespace rs {

class Region {
 public:
  // hugepages: auto, hugetlb, thp or no. Throws Failure when there is no address space.
  static Region anonymous(uint64_t bytes, const std::string& hugepages);
  // Read-only view of a sealed memory file.
  static Region shared(int fd, uint64_t bytes);
  Region() = default;
  Region(Region&& other) noexcept { swap(other); }
  Region& operator=(Region&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Region();

  uint8_t* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  const std::string& kind() const { return kind_; }

  // Faults [from, from + length) in; false when the kernel could not (memory, cgroup).
  bool populate(uint64_t from, uint64_t length, bool writable) const;
  // Locks the whole region against eviction; false with a reason when refused.
  bool lock(std::string* reason) const;
  void dont_fork() const;

 private:
  void swap(Region& other) noexcept;

  uint8_t* data_ = nullptr;
  uint64_t bytes_ = 0;
  std::string kind_;
};

struct Fit {
  bool fits;
  std::string reason;
};

// Whether `bytes` may be locked while `reserve` stays available: MemAvailable, every cgroup above
// this process, and RLIMIT_MEMLOCK for a process that may not exceed it.
Fit ram_fit(uint64_t bytes, uint64_t reserve);

}  // namespace rs
