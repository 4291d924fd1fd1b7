// HostRelay: dtrun --remote-agent, the far side of a HostLink: what dtrun --hosts starts on a host.
// It runs that host's dtrun, and starts the hosts below it. The end of its input is the end of its
// starter, or of the connection: it ends everything then.
#pragma once

#include <string>

#include "dtrun/base/env.h"
#include "hosts/node_process.h"

namespace dtrun::launcher {

/// Runs until its dtrun and the hosts below it have ended.
/// @param ports where the first host of the job listens; empty: this is another
/// @param environment this process's
/// @param run what the host's dtrun does, in a process of its own
/// @returns the exit code
/// @throws Error where standard input is not a starter's
int run_host_relay(const std::string& ports, const base::Environment& environment,
                   const NodeProcess::Run& run);

}  // namespace dtrun::launcher
