// Which backends this build has and this machine can use. Thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dtrun::collectives {

/// Of those built in, the ones that can be used here; "cpu" always is. And those that the program
/// has registered.
std::vector<std::string> available_backends();
/// False also for a name that dtrun does not know.
bool is_backend_available(std::string_view name);

}  // namespace dtrun::collectives
