// Fork danger: why a copy of this process could not live. fork() copies one thread and all memory:
// what the other threads held stays locked for ever, a Worker's connections belong to its parent,
// and a CUDA context does not work in a copy.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "dtrun/base/error.h"

namespace dtrun::mp {

struct ThreadFact {
  pid_t tid = 0;
  std::string name;
};

/// Pure. No Error: nothing is known against a copy.
std::optional<base::Error> fork_danger(int live_workers, const std::vector<std::string>& open_files,
                                       const std::vector<ThreadFact>& other_threads);

/// What this process's descriptors stand for: "/dev/nvidiactl", "socket:[12]".
std::vector<std::string> open_files();

/// The threads of this process but the caller's, without those that are ending.
std::vector<ThreadFact> other_threads();

}  // namespace dtrun::mp
