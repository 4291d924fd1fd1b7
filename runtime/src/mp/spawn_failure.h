// How one process of a spawn() failed, and which of several failures came first. Pure.
#pragma once

#include <sys/types.h>

#include <exception>
#include <string>

#include "dtrun/base/exit_status.h"
#include "hand_over.h"

namespace dtrun::mp {

struct SpawnFailure {
  int rank = 0;
  std::string process_name;
  pid_t pid = 0;
  base::ExitStatus status;
  Outcome outcome;

  /// Not ended well; or ended, but never came to its function.
  bool has_failed() const;
  /// It reports another's failure.
  bool is_victim() const;
};

/// Causes before their victims, who was killed before who threw (that one knows its time, the other
/// does not), then by time.
bool came_before(const SpawnFailure& a, const SpawnFailure& b);

/// What join() throws for it.
std::exception_ptr exception_of(const SpawnFailure& failure);

}  // namespace dtrun::mp
