// NodeProcess: the process that becomes a host's dtrun. It is a fork of the relay, made before the
// relay has an event loop or a thread, and waits for its order. To load dtrun a second time would
// take 2 ms of CPU on each host, half of them in CPUID, which traps on a virtual machine.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "dtrun/base/unique_fd.h"

namespace dtrun::launcher {

struct NodeProcess {
  /// All that dtrun does with a line. @returns its exit code
  using Run = std::function<int(const std::vector<std::string>& arguments)>;

  pid_t pid = -1;        ///< it leads its process group, and dies with the relay's thread
  base::UniqueFd order;  ///< for the HostOrder; closed without one, the process ends
  base::UniqueFd input;  ///< for its standard input
  base::UniqueFd out;    ///< of its standard output, if there are hosts below this one
  base::UniqueFd err;    ///< of its standard error

  /// @param listener at which the first host listens already; -1: this is another
  /// @throws Error kSystem
  static NodeProcess fork(int listener, const Run& run);
};

}  // namespace dtrun::launcher
