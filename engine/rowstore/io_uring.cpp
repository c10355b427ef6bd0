#include <errno.h>
#include <linux/io_uring.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>

#include "common.h"
#include "io_engine.h"
#include "telemetry_layout.h"

namespace rs {
namespace {

// A ring without liburing: three mappings and two system calls.
class UringEngine final : public IoEngine {
 public:
  explicit UringEngine(uint32_t entries) {
    io_uring_params params;
    memset(&params, 0, sizeof params);
    fd_ = int(syscall(SYS_io_uring_setup, entries, &params));
    if (fd_ < 0) throw Failure(RS_CONFIG, "io_uring_setup: " + errno_text(errno));
    if (!(params.features & IORING_FEAT_EXT_ARG) || !(params.features & IORING_FEAT_NODROP)) {
      close(fd_);
      throw Failure(RS_CONFIG, "io_uring of this kernel has no timed wait (5.11 or newer has)");
    }
    map_rings(params);
  }

  ~UringEngine() override { release(); }

  const char* name() const override { return "uring"; }
  uint32_t kind() const override { return layout::ENGINE_URING; }

  void register_buffers(uint8_t* base, uint64_t bytes) override {
    const iovec all{base, bytes};
    // Refusal (a small memlock limit) only costs page pinning per read.
    fixed_ = syscall(SYS_io_uring_register, fd_, IORING_REGISTER_BUFFERS, &all, 1) == 0;
  }

  bool submit(const Read& read) override {
    const uint32_t tail = *sq_tail_;
    if (tail - __atomic_load_n(sq_head_, __ATOMIC_ACQUIRE) >= sq_entries_) return false;
    io_uring_sqe& sqe = static_cast<io_uring_sqe*>(sqes_)[tail & sq_mask_];
    memset(&sqe, 0, sizeof sqe);
    sqe.opcode = fixed_ ? IORING_OP_READ_FIXED : IORING_OP_READ;
    sqe.fd = read.fd;
    sqe.off = read.offset;
    sqe.addr = uint64_t(read.buffer);
    sqe.len = read.length;
    sqe.user_data = read.id;
    sq_array_[tail & sq_mask_] = tail & sq_mask_;
    __atomic_store_n(sq_tail_, tail + 1, __ATOMIC_RELEASE);
    ++queued_;
    return true;
  }

  int reap(Completion* out, int max, uint64_t timeout_ns) override {
    // One system call sends and waits; what is already here is taken without waiting.
    const int got = harvest(out, max);
    const bool wait = got == 0 && timeout_ns > 0;
    if (queued_ > 0 || wait) enter(wait, timeout_ns);
    return got > 0 ? got : harvest(out, max);
  }

 private:
  static void* map(int fd, uint64_t bytes, uint64_t at) {
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd,
                   off_t(at));
    if (p != MAP_FAILED) madvise(p, bytes, MADV_DONTFORK);
    return p;
  }

  void release() {
    if (sqes_ != MAP_FAILED) munmap(sqes_, sqes_bytes_);
    if (cq_map_ != MAP_FAILED && cq_map_ != sq_map_) munmap(cq_map_, cq_bytes_);
    if (sq_map_ != MAP_FAILED) munmap(sq_map_, sq_bytes_);
    close(fd_);
  }

  void map_rings(const io_uring_params& p) {
    sq_bytes_ = p.sq_off.array + p.sq_entries * sizeof(uint32_t);
    cq_bytes_ = p.cq_off.cqes + p.cq_entries * sizeof(io_uring_cqe);
    const bool single = p.features & IORING_FEAT_SINGLE_MMAP;
    if (single) sq_bytes_ = cq_bytes_ = std::max(sq_bytes_, cq_bytes_);
    sqes_bytes_ = p.sq_entries * sizeof(io_uring_sqe);
    sq_map_ = map(fd_, sq_bytes_, IORING_OFF_SQ_RING);
    cq_map_ = single ? sq_map_ : map(fd_, cq_bytes_, IORING_OFF_CQ_RING);
    sqes_ = map(fd_, sqes_bytes_, IORING_OFF_SQES);
    if (sq_map_ == MAP_FAILED || cq_map_ == MAP_FAILED || sqes_ == MAP_FAILED) {
      const std::string why = errno_text(errno);
      release();
      throw Failure(RS_CONFIG, "mapping the io_uring rings: " + why);
    }
    auto* sq = static_cast<uint8_t*>(sq_map_);
    auto* cq = static_cast<uint8_t*>(cq_map_);
    sq_head_ = reinterpret_cast<uint32_t*>(sq + p.sq_off.head);
    sq_tail_ = reinterpret_cast<uint32_t*>(sq + p.sq_off.tail);
    sq_array_ = reinterpret_cast<uint32_t*>(sq + p.sq_off.array);
    sq_mask_ = p.sq_entries - 1;
    sq_entries_ = p.sq_entries;
    cq_head_ = reinterpret_cast<uint32_t*>(cq + p.cq_off.head);
    cq_tail_ = reinterpret_cast<uint32_t*>(cq + p.cq_off.tail);
    cqes_ = reinterpret_cast<io_uring_cqe*>(cq + p.cq_off.cqes);
    cq_mask_ = p.cq_entries - 1;
  }

  void enter(uint32_t wait_for, uint64_t timeout_ns) {
    __kernel_timespec time{int64_t(timeout_ns / kSecond), int64_t(timeout_ns % kSecond)};
    io_uring_getevents_arg arg{0, 0, 0, uint64_t(&time)};
    const uint32_t flags = wait_for ? IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG : 0;
    const long sent = syscall(SYS_io_uring_enter, fd_, queued_, wait_for, flags,
                              wait_for ? &arg : nullptr, wait_for ? sizeof arg : 0);
    // A refused submission (EAGAIN, EBUSY) stays queued and goes out with the next call.
    if (sent > 0) queued_ -= std::min<uint32_t>(queued_, uint32_t(sent));
  }

  int harvest(Completion* out, int max) {
    uint32_t head = *cq_head_;
    const uint32_t tail = __atomic_load_n(cq_tail_, __ATOMIC_ACQUIRE);
    int got = 0;
    for (; head != tail && got < max; ++head, ++got) {
      const io_uring_cqe& cqe = cqes_[head & cq_mask_];
      out[got] = {uint32_t(cqe.user_data), cqe.res};
    }
    __atomic_store_n(cq_head_, head, __ATOMIC_RELEASE);
    return got;
  }

  int fd_ = -1;
  void* sq_map_ = MAP_FAILED;
  void* cq_map_ = MAP_FAILED;
  void* sqes_ = MAP_FAILED;
  uint64_t sq_bytes_ = 0, cq_bytes_ = 0, sqes_bytes_ = 0;
  uint32_t *sq_head_ = nullptr, *sq_tail_ = nullptr, *sq_array_ = nullptr;
  uint32_t *cq_head_ = nullptr, *cq_tail_ = nullptr;
  io_uring_cqe* cqes_ = nullptr;
  uint32_t sq_mask_ = 0, sq_entries_ = 0, cq_mask_ = 0, queued_ = 0;
  bool fixed_ = false;
};

}  // namespace

std::unique_ptr<IoEngine> make_uring(uint32_t entries) {
  return std::make_unique<UringEngine>(entries);
}

}  // namespace rs
