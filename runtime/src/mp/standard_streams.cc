#include "standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "dtrun/base/error.h"

namespace dtrun::mp {

void flush_standard_streams() {
  std::cout.flush();
  std::fflush(stdout);
  std::fflush(stderr);
}

void close_standard_input() {
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null < 0) return;
  ::dup2(null, STDIN_FILENO);
  if (null != STDIN_FILENO) ::close(null);
}

base::UniqueFd duplicate_stream(int fd) {
  base::UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!copy) copy = base::UniqueFd(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (!copy)
    throw base::system_error("duplicate a standard stream",
                             "raise the limit of open files (ulimit -n)");
  return copy;
}

}  // namespace dtrun::mp
