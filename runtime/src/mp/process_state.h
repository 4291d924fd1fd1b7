// What a Process holds. Shared by process.cc and spawn.cc only.
#pragma once

#include <memory>

#include "dtrun/runtime/mp.h"
#include "started_process.h"

namespace dtrun::mp {

struct Process::State {
  Task task;
  ProcessOptions options;
  Site site;
  pid_t creator;
  std::shared_ptr<StartedProcess> started;
  bool print_exception = true;  // false where spawn() throws it

  /// @throws Error kUsage before start(), and in another process
  StartedProcess& require_started(const char* call) const;
  Order make_order() const;
};

/// The error where a process ended of itself and never came to its function.
base::Error never_begun(const std::string& who, const base::ExitStatus& status);

}  // namespace dtrun::mp
