#include "dtrun/base/exit_status.h"

#include <fmt/core.h>
#include <sys/wait.h>

#include "dtrun/base/error.h"

namespace dtrun::base {

ExitStatus ExitStatus::from_wait_status(int status) {
  ExitStatus result;
  if (WIFSIGNALED(status)) {
    result.signal = WTERMSIG(status);
    result.dumped = WCOREDUMP(status);
  } else {
    result.code = WEXITSTATUS(status);
  }
  return result;
}

std::string ExitStatus::describe() const {
  if (signal == 0) return fmt::format("exit code {}", code);
  return signal_name(signal) + (dumped ? " (core dumped)" : "");
}

}  // namespace dtrun::base
