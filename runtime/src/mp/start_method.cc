#include "start_method.h"

#include <fmt/core.h>

#include "dtrun/base/error.h"
#include "dtrun/runtime/mp.h"
#include "this_process.h"

namespace dtrun::mp {

using base::Error;
using base::ErrorCode;

StartMethod parse_start_method(const std::string& name) {
  if (name == "spawn") return StartMethod::kSpawn;
  if (name == "fork") return StartMethod::kFork;
  if (name == "forkserver") return StartMethod::kForkserver;
  throw Error(ErrorCode::kInvalidArgument, fmt::format("there is no start method '{}'", name), "",
              "spawn (a fresh image), fork (a copy of this process) or forkserver (a copy of a "
              "fresh image)");
}

void set_start_method(const std::string& method, SetStartMethod options) {
  parse_start_method(method);
  ThisProcess& process = ThisProcess::get();
  const auto force = options.force ? ThisProcess::Force::yes : ThisProcess::Force::no;
  if (!process.set_start_method(method, force))
    throw Error(
        ErrorCode::kUsage,
        fmt::format("the start method has been set already, to '{}'", get_start_method()), "",
        "set it once, at the start of main(); or set_start_method(\"...\", {.force = true})");
}

std::string get_start_method() {
  return ThisProcess::get().start_method();
}

}  // namespace dtrun::mp
