// Forkserver: a fresh image of this program that does nothing but fork, started with the first
// process that asks for it. It is single-threaded and clean, so its copies are, too.
#pragma once

#include "started_process.h"

namespace dtrun::mp {

/// The server's life: until its parent ends.
[[noreturn]] void serve_forks();

/// @throws Error kSystem
StartedProcess::Parts start_served(const Order& order);

/// At exit.
void stop_fork_server();

}  // namespace dtrun::mp
