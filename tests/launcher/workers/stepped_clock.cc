// Preloaded into a program: its wall clock is ahead by the seconds that stand, as an int64, in the
// file named by DTRUN_TEST_CLOCK, and steps whenever they change. Other clocks are left alone.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>

namespace {

std::int64_t step_seconds() {
  static std::atomic<std::int64_t>* const step = [] {
    const char* const name = std::getenv("DTRUN_TEST_CLOCK");
    const int fd = name == nullptr ? -1 : ::open(name, O_RDONLY | O_CLOEXEC);
    void* const page =
        fd < 0 ? MAP_FAILED : ::mmap(nullptr, sizeof(std::int64_t), PROT_READ, MAP_SHARED, fd, 0);
    if (fd >= 0) ::close(fd);
    return page == MAP_FAILED ? nullptr : static_cast<std::atomic<std::int64_t>*>(page);
  }();
  return step == nullptr ? 0 : step->load();
}

bool is_wall_clock(clockid_t clock) {
  return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI;
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const long result = ::syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && is_wall_clock(clock)) now->tv_sec += step_seconds();
  return static_cast<int>(result);
}

int gettimeofday(timeval* now, void*) noexcept {
  timespec precise{};
  clock_gettime(CLOCK_REALTIME, &precise);
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* now) noexcept {
  timespec precise{};
  clock_gettime(CLOCK_REALTIME, &precise);
  if (now != nullptr) *now = precise.tv_sec;
  return precise.tv_sec;
}
}
