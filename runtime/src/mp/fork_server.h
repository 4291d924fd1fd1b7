// Forkserver: a fresh image of this program that does nothing but fork, started with the first
// process that asks for it. It is single-threaded and clean, so its copies are, too. It holds an
// ended child unreaped until the parent knows of the end: the child's number stays its own as long
// as the parent may send it signals.
//
// A request on the control socket is no text but the descriptors of RequestFd. The answer on the
// child's status socket is its pid and pidfd, or minus errno; then its wait status, once.
#pragma once

#include "started_process.h"

namespace dtrun::mp {

enum RequestFd {
  kHandOver,
  kStatusSocket,
  kStandardOutput,
  kStandardError,
  kWorkingFolder,
  kRequestFds
};

/// The server's life: until its parent ends.
[[noreturn]] void serve_forks(base::UniqueFd control);

/// Starts a server where there is none. @throws Error kSystem
StartedProcess::Parts start_served(Order order);

/// At exit.
void stop_fork_server();

}  // namespace dtrun::mp
