#include "crc32c.h"

#include <array>
#include <cstring>

namespace rs {
namespace {

std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0u);
    table[i] = crc;
  }
  return table;
}

uint32_t by_table(const uint8_t* p, size_t n, uint32_t crc) {
  static const std::array<uint32_t, 256> table = make_table();
  for (; n; --n) crc = (crc >> 8) ^ table[(crc ^ *p++) & 255];
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t by_instruction(const uint8_t* p, size_t n,
                                                          uint32_t crc) {
  uint64_t wide = crc;
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t word;
    memcpy(&word, p, 8);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  crc = uint32_t(wide);
  for (; n; --n) crc = __builtin_ia32_crc32qi(crc, *p++);
  return crc;
}

bool has_instruction() {
  static const bool has = __builtin_cpu_supports("sse4.2");
  return has;
}
#else
uint32_t by_instruction(const uint8_t* p, size_t n, uint32_t crc) { return by_table(p, n, crc); }
bool has_instruction() { return false; }
#endif

}  // namespace

uint32_t crc32c(const void* data, size_t bytes, uint32_t seed) {
  const auto* p = static_cast<const uint8_t*>(data);
  return ~(has_instruction() ? by_instruction(p, bytes, ~seed) : by_table(p, bytes, ~seed));
}

}  // namespace rs
