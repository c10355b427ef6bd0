// What carries reads to the kernel. An engine is used by one thread at a time and never blocks
// longer than the time-out given to reap().
#pragma once
#include <cstdint>
#include <memory>
#include <string>

namespace rs {

struct Read {
  uint32_t id;
  int fd;
  uint64_t offset;
  uint32_t length;
  uint8_t* buffer;
};

struct Completion {
  uint32_t id;
  int32_t result;  // bytes, or a negative errno
};

class IoEngine {
 public:
  virtual ~IoEngine() = default;
  virtual const char* name() const = 0;
  virtual uint32_t kind() const = 0;  // layout::ENGINE_*
  virtual void register_buffers(uint8_t* base, uint64_t bytes) = 0;
  // Queues a read; false when the engine is full.
  virtual bool submit(const Read& read) = 0;
  // Starts what was queued and returns finished reads, waiting for the first at most timeout_ns.
  virtual int reap(Completion* out, int max, uint64_t timeout_ns) = 0;
};

// Each throws Failure when the kernel, or the container, refuses it.
std::unique_ptr<IoEngine> make_uring(uint32_t entries);
std::unique_ptr<IoEngine> make_aio(uint32_t entries);
std::unique_ptr<IoEngine> make_pool(uint32_t entries, uint32_t threads);

}  // namespace rs
