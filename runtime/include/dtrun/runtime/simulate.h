// simulate: a program of many ranks in one process, without a launcher: for a look at what 64 ranks
// do, in a debugger, in a test.
#pragma once

#include <chrono>
#include <functional>

namespace dtrun::runtime {

struct SimulateOptions {
  /// LOCAL_RANK counts up to it, as if so many ranks were on each node; 0: all on one.
  int ranks_per_node = 0;
};

/// Runs `program` on `ranks` threads at once and returns when all have ended. On each of them
/// dist::init_process_group(), or init(), with whatever init method, joins the world of these
/// threads as a rank of its own; groups, meshes, tensors, random numbers and counters are the
/// thread's. What is one for the process is shared: global variables, the environment (getenv says
/// nothing of ranks), the working folder.
/// @throws Error kInvalidArgument for no ranks; what the first rank throws, an Error with that
/// rank's number before its text, after the others have ended: they are told that it is gone. So
/// are those that wait for a rank that returned without joining them: Error kUsage
void simulate(int ranks, const std::function<void()>& program, SimulateOptions options = {});

}  // namespace dtrun::runtime
