// Threads of the library, as their host program wants them: they take no signals, which are for the
// program's own threads, and have a name in ps and gdb.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace dtrun::collectives {

/// @param name at most 15 characters
std::thread start_quiet_thread(std::string name, std::function<void()> body);

}  // namespace dtrun::collectives
