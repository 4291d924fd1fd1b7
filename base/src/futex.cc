#include "dtrun/base/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

namespace dtrun::base {

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

void futex_wake_all(const std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace dtrun::base
