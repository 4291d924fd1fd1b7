#include "dtrun/base/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>

#include "dtrun/base/check.h"

namespace dtrun::base {

namespace {

// As struct futex_waitv of <linux/futex.h>, which Debian 12's older relatives do not have yet.
struct WaitEntry {
  std::uint64_t value;
  std::uint64_t address;
  std::uint32_t flags;
  std::uint32_t reserved;
};
constexpr std::uint32_t kWord32Bits = 2;
constexpr long kFutexWaitv = 449;
constexpr std::size_t kMostWords = 4;
constexpr auto kFallbackSlice = std::chrono::milliseconds(50);

// The call takes an absolute time. steady_clock is CLOCK_MONOTONIC.
timespec absolute_time(Deadline deadline) {
  const auto since_boot = deadline.when().time_since_epoch();
  timespec result{};
  result.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(since_boot).count();
  result.tv_nsec = (since_boot % std::chrono::seconds(1)).count();
  return result;
}

}  // namespace

void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected, Deadline deadline) {
  timespec timeout{};
  timespec* limit = nullptr;
  if (!deadline.is_never()) {
    const auto left = deadline.remaining();
    if (left <= Deadline::Duration::zero()) return;
    timeout.tv_sec = left / std::chrono::seconds(1);
    timeout.tv_nsec = (left % std::chrono::seconds(1)).count();
    limit = &timeout;
  }
  // EAGAIN (the word changed), EINTR and ETIMEDOUT all mean: look again.
  ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, limit, nullptr, 0);
}

void futex_wait_any(std::span<const FutexWord> words, Deadline deadline) {
  DT_CHECK(!words.empty() && words.size() <= kMostWords);
  if (words.size() == 1) return futex_wait(*words[0].word, words[0].expected, deadline);
  std::array<WaitEntry, kMostWords> entries{};
  for (std::size_t i = 0; i < words.size(); ++i)
    entries[i] = {words[i].expected, reinterpret_cast<std::uintptr_t>(words[i].word), kWord32Bits,
                  0};
  timespec limit{};
  if (!deadline.is_never()) limit = absolute_time(deadline);
  const long woken = ::syscall(kFutexWaitv, entries.data(), words.size(), 0,
                               deadline.is_never() ? nullptr : &limit, CLOCK_MONOTONIC);
  if (woken < 0 && (errno == ENOSYS || errno == EPERM))
    futex_wait(*words[0].word, words[0].expected,
               deadline.earlier(Deadline::after(kFallbackSlice)));
}

void futex_wake_all(const std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace dtrun::base
