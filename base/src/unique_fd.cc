#include "dtrun/base/unique_fd.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#include "dtrun/base/error.h"

namespace dtrun::base {

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void UniqueFd::reset() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw system_error("make a pipe", "raise the limit of open files (ulimit -n)");
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

UniqueFd moved_up(UniqueFd fd, int lowest) {
  const int number = ::fcntl(fd.get(), F_DUPFD_CLOEXEC, lowest);
  if (number < 0)
    throw system_error("move a file descriptor up", "raise the limit of open files (ulimit -n)");
  return UniqueFd(number);
}

void reserve_descriptors(std::size_t count) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  count = std::min<std::size_t>({count, limit.rlim_cur, INT_MAX});
  if (count == 0) return;
  const UniqueFd any(::epoll_create1(EPOLL_CLOEXEC));
  UniqueFd(::fcntl(any.get(), F_DUPFD_CLOEXEC, static_cast<int>(count) - 1));
}

}  // namespace dtrun::base
