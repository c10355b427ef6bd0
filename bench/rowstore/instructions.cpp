// Gathers N times 288 random rows in RAM mode, for counting instructions where clocks are noisy:
//   g++ -std=c++20 -O2 -I engine/rowstore -o /tmp/instructions bench/rowstore/instructions.cpp -ldl
//   valgrind --tool=callgrind --callgrind-out-file=/dev/null /tmp/instructions LIBRARY TABLE off 1200
// The difference between two values of N is what the gathers cost; "off" or a path is the page.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "rowstore.h"

int main(int count, char** words) {
  if (count != 5) return fprintf(stderr, "usage: instructions LIBRARY TABLE off|PAGE GATHERS\n"), 2;
  void* library = dlopen(words[1], RTLD_NOW);
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
  const auto open = reinterpret_cast<decltype(&rs_open)>(dlsym(library, "rs_open"));
  const auto gather = reinterpret_cast<decltype(&rs_gather)>(dlsym(library, "rs_gather"));
  rs_store* store = nullptr;
  const std::string config = std::string("table=") + words[2] +
                             "\nmode=ram\nlanes=1\nreserve_bytes=0\ntelemetry=" + words[3];
  if (open(config.c_str(), &store) != RS_OK) return fprintf(stderr, "cannot open\n"), 1;
  constexpr uint32_t kRows = 288, kTableRows = 100'000;
  std::vector<int64_t> ids(kRows);
  std::vector<uint8_t> out(kRows * 264);
  rs_request request{};
  request.ids = ids.data();
  request.codes = out.data();
  request.count = kRows;
  request.layer = 1;
  uint64_t random = 88172645463325252ull;
  for (long n = atol(words[4]); n > 0; --n) {
    for (int64_t& id : ids) {
      random ^= random << 13;
      random ^= random >> 7;
      random ^= random << 17;
      id = int64_t(random % kTableRows);
    }
    if (gather(store, &request) != RS_OK) return fprintf(stderr, "a gather failed\n"), 1;
  }
  _exit(0);  // closing is not what is counted
}
