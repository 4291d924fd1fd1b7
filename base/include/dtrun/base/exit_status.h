// ExitStatus: how a process ended, as wait(2) tells it. A value.
#pragma once

#include <string>

namespace dtrun::base {

struct ExitStatus {
  int code = 0;         ///< what it passed to exit; 0 when a signal ended it
  int signal = 0;       ///< the signal that ended it; 0 when it exited by itself
  bool dumped = false;  ///< a core was written

  static ExitStatus from_wait_status(int status);
  bool success() const { return code == 0 && signal == 0; }
  /// As shells count: the code, or 128 + signal.
  int shell_code() const { return signal != 0 ? 128 + signal : code; }
  /// "exit code 3", "SIGSEGV (core dumped)"
  std::string describe() const;
};

}  // namespace dtrun::base
