// Preloaded into a program: its steady time goes DTRUN_TEST_SPEED times as fast, and what it waits
// for is as much nearer, so that a test need not wait as long as a user's patience is. The wall
// clock is left alone. Every process has the same fast time.
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

std::int64_t speed() {
  static const std::int64_t the_speed = [] {
    const char* const text = std::getenv("DTRUN_TEST_SPEED");
    return std::max(1, text == nullptr ? 1 : std::atoi(text));
  }();
  return the_speed;
}

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

std::int64_t nanoseconds(const timespec& time) {
  return time.tv_sec * kSecond + time.tv_nsec;
}

timespec timespec_of(std::int64_t time) {
  return {time / kSecond, time % kSecond};
}

// Not 0 where it was more: that has a meaning of its own.
timespec slowed(const timespec& time) {
  return timespec_of((nanoseconds(time) + speed() - 1) / speed());
}

int slowed_ms(int timeout) {
  const int by = static_cast<int>(speed());
  return timeout <= 0 ? timeout : (timeout - 1) / by + 1;
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const long result = ::syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && clock == CLOCK_MONOTONIC) *now = timespec_of(nanoseconds(*now) * speed());
  return static_cast<int>(result);
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* until) {
  static const auto real = next<decltype(&::pthread_cond_clockwait)>("pthread_cond_clockwait");
  const timespec nearer = clock == CLOCK_MONOTONIC ? slowed(*until) : *until;
  return real(condition, mutex, clock, &nearer);
}

int timerfd_settime(int fd, int flags, const itimerspec* time, itimerspec* before) noexcept {
  static const auto real = next<decltype(&::timerfd_settime)>("timerfd_settime");
  itimerspec nearer = *time;
  if ((flags & TFD_TIMER_ABSTIME) == 0)
    nearer = {slowed(time->it_interval), slowed(time->it_value)};
  return real(fd, flags, &nearer, before);
}

int poll(pollfd* fds, nfds_t count, int timeout) {
  static const auto real = next<decltype(&::poll)>("poll");
  return real(fds, count, slowed_ms(timeout));
}

int epoll_wait(int fd, epoll_event* events, int most, int timeout) {
  static const auto real = next<decltype(&::epoll_wait)>("epoll_wait");
  return real(fd, events, most, slowed_ms(timeout));
}
}
