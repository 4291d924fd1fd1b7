// This process's place in the job: what init() was given, laid over the environment.
#pragma once

#include "dtrun/base/env.h"
#include "dtrun/rendezvous/worker_env.h"
#include "dtrun/runtime/worker.h"
#include "init_method.h"

namespace dtrun::runtime {

/// Where the options say to meet. For env:// under mpirun, without an address: in mpirun's folder.
InitMethod find_meeting(const InitOptions& options);

/// The arguments of init() count before the init method's, and both before the environment.
/// @throws Error kInvalidArgument for a rank, world size or timeout that cannot be; what
/// rendezvous::read_worker_env throws
rendezvous::WorkerEnv find_place(const InitOptions& options, const InitMethod& method);

}  // namespace dtrun::runtime
