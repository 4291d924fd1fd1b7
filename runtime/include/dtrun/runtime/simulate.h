// simulate: a program of many ranks in one process, without a launcher: in a debugger, in a test,
// or to see what 64 ranks do.
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
/// thread's. The process's state is shared: global variables, the environment (getenv("RANK") is of
/// no use), the working folder.
///
/// When a rank throws, the others are told that it is gone. Once all have ended, simulate() throws
/// an Error with the first such rank's number before its text. @throws Error kInvalidArgument for
/// no ranks; kUsage when ranks wait for one that returned without joining them
void simulate(int ranks, const std::function<void()>& program, SimulateOptions options = {});

}  // namespace dtrun::runtime
