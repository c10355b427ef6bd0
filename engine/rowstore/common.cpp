#include "common.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace rs {
namespace {

std::atomic<uint32_t> forks{0};

void count_fork() { forks.fetch_add(1, std::memory_order_relaxed); }

const int registered = pthread_atfork(nullptr, nullptr, count_fork);

}  // namespace

uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return uint64_t(t.tv_sec) * kSecond + uint64_t(t.tv_nsec);
}

uint32_t thread_id() {
  static thread_local uint32_t cached = 0;
  if (cached == 0) cached = uint32_t(syscall(SYS_gettid));
  return cached;
}

std::string errno_text(int error) {
  char buffer[128];
  return strerror_r(error, buffer, sizeof buffer);
}

void futex_wait(const std::atomic<uint32_t>& word, uint32_t expected, uint64_t timeout_ns) {
  timespec t{time_t(timeout_ns / kSecond), long(timeout_ns % kSecond)};
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, &t, nullptr, 0);
}

void futex_wake_all(const std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 0x7fffffff, nullptr, nullptr, 0);
}

uint32_t fork_generation() {
  (void)registered;
  return forks.load(std::memory_order_relaxed);
}

void block_signals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

void name_thread(const char* name) { pthread_setname_np(pthread_self(), name); }

}  // namespace rs
