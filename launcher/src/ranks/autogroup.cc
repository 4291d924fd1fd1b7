#include "ranks/autogroup.h"

#include <fcntl.h>
#include <unistd.h>

#include "dtrun/base/unique_fd.h"

namespace dtrun::launcher {

bool sessions_share_the_cpus() {
  const base::UniqueFd fd(::open("/proc/sys/kernel/sched_autogroup_enabled", O_RDONLY | O_CLOEXEC));
  char digit = '0';
  return fd && ::read(fd.get(), &digit, 1) == 1 && digit == '1';
}

}  // namespace dtrun::launcher
