// What launch_bench and the ranks that it starts (launch_rank) share: a file that both map. Times
// are CLOCK_MONOTONIC in nanoseconds.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>

struct LaunchPage {
  std::uint32_t expected;                       ///< ranks
  std::atomic<std::uint32_t> arrived[2];        ///< in main; before and after a restart
  std::atomic<std::int64_t> first[2], last[2];  ///< when they came to main
  std::atomic<std::int64_t> death;              ///< when a rank was about to die
  std::atomic<std::int64_t> told[2];            ///< when the first rank of node 0, 1 got SIGTERM
};

inline std::int64_t now_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1'000'000'000LL + time.tv_nsec;
}
