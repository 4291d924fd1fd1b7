// Foreground: whether this process, or the one that it was forked from, has its terminal to itself:
// a shell with job control takes it back when the job is stopped (Ctrl-Z), and keeps it while it
// runs in the background. Then the last line there is the shell's. Thread-safe.
#pragma once

#include "dtrun/base/unique_fd.h"

namespace dtrun::launcher {

class Foreground {
 public:
  /// Describes this process. Its forks keep the answer, also in a pid namespace of their own.
  Foreground();

  /// True also where no shell could take the terminal away. False when the process is gone.
  bool is_ours() const;

 private:
  base::UniqueFd stat_;
};

/// Stops the process as the signal's default action does, so that the shell sees it. Returns when
/// it is continued, and at once where nobody could continue it (an orphaned process group).
/// @param signal_number SIGTSTP, SIGTTIN or SIGTTOU
void stop_this_process(int signal_number);

}  // namespace dtrun::launcher
