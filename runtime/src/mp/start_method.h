// How a process is started.
#pragma once

#include <string>

namespace dtrun::mp {

enum class StartMethod { kSpawn, kFork, kForkserver };

/// @throws Error kInvalidArgument with the list of names
StartMethod parse_start_method(const std::string& name);

}  // namespace dtrun::mp
