// Clock, futex, fork detection and the exception that never leaves rs_open.
#pragma once
#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "rowstore.h"

namespace rs {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kPage = 4096;
constexpr uint32_t kLanesMax = 16;
constexpr uint32_t kNoLane = 0xffffffff;

// Thrown while opening or switching, with a sentence for the operator; lanes never throw.
struct Failure : std::runtime_error {
  Failure(rs_status code, const std::string& text) : std::runtime_error(text), status(code) {}
  rs_status status;
};

uint64_t now_ns();
uint32_t thread_id();
std::string errno_text(int error);

// Sleeps while *word == expected, at most timeout_ns; spurious returns are allowed.
void futex_wait(const std::atomic<uint32_t>& word, uint32_t expected, uint64_t timeout_ns);
void futex_wake_all(const std::atomic<uint32_t>& word);

// Counts forks seen by this process: a store remembers the value at open, so that use after a
// fork is an error and not a hang on a ring that belongs to the parent.
uint32_t fork_generation();

// Threads of the store take no signals: they belong to the engine.
void block_signals();
void name_thread(const char* name);

template <class T>
T load_relaxed(const T& value) {
  return __atomic_load_n(&value, __ATOMIC_RELAXED);
}
template <class T>
void store_relaxed(T& target, T value) {
  __atomic_store_n(&target, value, __ATOMIC_RELAXED);
}
template <class T>
void add_relaxed(T& target, T value) {
  __atomic_fetch_add(&target, value, __ATOMIC_RELAXED);
}

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

inline uint64_t mix64(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

}  // namespace rs
