// CRC-32C (Castagnoli), with the processor's instruction where there is one.
#pragma once
#include <cstddef>
#include <cstdint>

namespace rs {

// Chains: crc32c(b, n, crc32c(a, m, 0)) is the check of a followed by b.
uint32_t crc32c(const void* data, size_t bytes, uint32_t seed);

}  // namespace rs
