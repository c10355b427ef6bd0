// Times gathers of random rows inside the library, in RAM mode, against a bare loop that prefetches and copies rows of
// the same size from as much memory. One line a pair: nanoseconds of the store, nanoseconds of the bare loop.
// `ram_gather.py` compiles and runs it.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "rowstore.h"

namespace {

constexpr uint32_t kRows = 288, kRowBytes = 264, kAhead = 16, kLine = 64;

uint64_t now_ns() {
  timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return uint64_t(at.tv_sec) * 1'000'000'000 + uint64_t(at.tv_nsec);
}

void prefetch_row(const uint8_t* row) {
  for (uint32_t at = 0; at < kRowBytes + kLine - 1; at += kLine) __builtin_prefetch(row + at);
}

void copy_rows(const uint8_t* table, const int64_t* ids, uint8_t* out) {
  for (uint32_t k = 0; k < kAhead; ++k) prefetch_row(table + ids[k] * kRowBytes);
  for (uint32_t k = 0; k < kRows; ++k) {
    if (k + kAhead < kRows) prefetch_row(table + ids[k + kAhead] * kRowBytes);
    memcpy(out + k * kRowBytes, table + ids[k] * kRowBytes, kRowBytes);
  }
}

class Ids {
 public:
  explicit Ids(int64_t rows) : rows_(rows), drawn_(kRows) {}
  const int64_t* draw() {
    for (int64_t& id : drawn_) {
      random_ ^= random_ << 13;
      random_ ^= random_ >> 7;
      random_ ^= random_ << 17;
      id = int64_t(random_ % uint64_t(rows_));
    }
    return drawn_.data();
  }

 private:
  int64_t rows_;
  std::vector<int64_t> drawn_;
  uint64_t random_ = 88172645463325252ull;
};

}  // namespace

int main(int count, char** words) {
  if (count != 5) return fprintf(stderr, "usage: ram_gather LIBRARY TABLE ROWS PAIRS\n"), 2;
  void* library = dlopen(words[1], RTLD_NOW);
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
  const auto open = reinterpret_cast<decltype(&rs_open)>(dlsym(library, "rs_open"));
  const auto gather = reinterpret_cast<decltype(&rs_gather)>(dlsym(library, "rs_gather"));
  rs_store* store = nullptr;
  const std::string config =
      std::string("table=") + words[2] + "\nmode=ram\nlanes=1\nreserve_bytes=0\ntelemetry=off";
  if (open(config.c_str(), &store) != RS_OK) return fprintf(stderr, "cannot open\n"), 1;

  const int64_t rows = atoll(words[3]);
  const size_t bytes = size_t(rows) * kRowBytes;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return fprintf(stderr, "no memory for the bare loop\n"), 1;
  madvise(memory, bytes, MADV_HUGEPAGE);
  memset(memory, 1, bytes);

  Ids ids(rows);
  std::vector<uint8_t> out(kRows * kRowBytes);
  rs_request request{};
  request.codes = out.data();
  request.count = kRows;
  request.layer = 1;
  for (long n = atol(words[4]); n > 0; --n) {
    request.ids = ids.draw();
    const uint64_t began = now_ns();
    if (gather(store, &request) != RS_OK) return fprintf(stderr, "a gather failed\n"), 1;
    const uint64_t gathered = now_ns() - began;
    const int64_t* others = ids.draw();
    const uint64_t again = now_ns();
    copy_rows(static_cast<const uint8_t*>(memory), others, out.data());
    printf("%llu %llu\n", static_cast<unsigned long long>(gathered),
           static_cast<unsigned long long>(now_ns() - again));
  }
  fflush(stdout);
  _exit(0);  // closing is not what is timed
}
