#include <errno.h>
#include <linux/aio_abi.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "common.h"
#include "io_engine.h"
#include "telemetry_layout.h"

namespace rs {
namespace {

class AioEngine final : public IoEngine {
 public:
  explicit AioEngine(uint32_t entries) : blocks_(entries) {
    if (syscall(SYS_io_setup, entries, &context_) != 0)
      throw Failure(RS_CONFIG, "io_setup: " + errno_text(errno) +
                                   "; fs.aio-max-nr may be used up by other processes");
    for (uint32_t k = 0; k < entries; ++k) free_.push_back(entries - 1 - k);
    queue_.reserve(entries);
  }

  ~AioEngine() override { syscall(SYS_io_destroy, context_); }

  const char* name() const override { return "aio"; }
  uint32_t kind() const override { return layout::ENGINE_AIO; }
  void register_buffers(uint8_t*, uint64_t) override {}

  bool submit(const Read& read) override {
    if (free_.empty()) return false;
    iocb& block = blocks_[free_.back()];
    memset(&block, 0, sizeof block);
    block.aio_data = uint64_t(free_.back()) << 32 | read.id;
    block.aio_lio_opcode = IOCB_CMD_PREAD;
    block.aio_fildes = uint32_t(read.fd);
    block.aio_buf = uint64_t(read.buffer);
    block.aio_nbytes = read.length;
    block.aio_offset = int64_t(read.offset);
    free_.pop_back();
    queue_.push_back(&block);
    return true;
  }

  int reap(Completion* out, int max, uint64_t timeout_ns) override {
    start();
    io_event events[64];
    timespec wait{time_t(timeout_ns / kSecond), long(timeout_ns % kSecond)};
    const long got = syscall(SYS_io_getevents, context_, timeout_ns ? 1 : 0, std::min(max, 64),
                             events, &wait);
    for (long k = 0; k < got; ++k) {
      out[k] = {uint32_t(events[k].data), int32_t(events[k].res)};
      free_.push_back(uint32_t(events[k].data >> 32));
    }
    return int(std::max(got, 0L));
  }

 private:
  void start() {
    if (queue_.empty()) return;
    const long sent = syscall(SYS_io_submit, context_, queue_.size(), queue_.data());
    // What the kernel did not take (EAGAIN) goes out with the next call.
    if (sent > 0) queue_.erase(queue_.begin(), queue_.begin() + sent);
  }

  aio_context_t context_ = 0;
  std::vector<iocb> blocks_;
  std::vector<uint32_t> free_;
  std::vector<iocb*> queue_;
};

}  // namespace

std::unique_ptr<IoEngine> make_aio(uint32_t entries) {
  return std::make_unique<AioEngine>(entries);
}

}  // namespace rs
