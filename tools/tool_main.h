// tool_main: how the small programs end whose errors are told alike: 64 for a wrong command line,
// 71 for other errors that have a name, 70 for the rest.
#pragma once

#include <fmt/core.h>

#include <cstdio>
#include <exception>

#include "dtrun/base/error.h"
#include "options/exit_code.h"

namespace dtrun::tools {

/// @param name of the program, for its messages
inline int tool_main(const char* name, int (*run)(int, char**), int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const base::Error& error) {
    fmt::print(stderr, "{}: error: {}\n", name, error.what());
    return error.code() == base::ErrorCode::kUsage ? launcher::kExitUsage : launcher::kExitSystem;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: error: {}\n", name, error.what());
    return launcher::kExitInternal;
  }
}

}  // namespace dtrun::tools
