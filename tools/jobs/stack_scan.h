// The stacks of a process that runs, where no program is here that unwinds them: its threads are
// stopped for a moment, and what looks like a return address on their stacks is taken for a frame.
// So all frames are shown, and besides them some of calls that have returned already. Nothing of
// the process is changed. x86-64 and AArch64. Blocks for a second at the most.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "dtrun/rendezvous/crash_stack.h"

namespace dtrun::jobs {

struct ThreadStack {
  pid_t thread = 0;
  std::string name;
  std::vector<rendezvous::CrashFrame> frames;  ///< the innermost first, 32 at the most
};

/// Empty: the process may not be traced (another user's, kernel.yama.ptrace_scope), or has ended.
std::vector<ThreadStack> scan_stacks(pid_t pid);

}  // namespace dtrun::jobs
