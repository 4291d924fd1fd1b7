// CalledAs: the name under which dtrun was started. A link to it named torchrun behaves as torchrun
// does where the two differ by choice (docs/command_line.md). Pure.
#pragma once

#include <string_view>

namespace dtrun::launcher {

enum class CalledAs {
  kDtrun,
  kTorchrun,
  kTorchDistributedLaunch,  ///< the older one: --local-rank=N before the program's arguments
};

/// @param name argv[0]
CalledAs called_as(std::string_view name);

/// Whether it ends as torchrun does: 2 for usage, 1 for whatever else is an error of its own.
inline bool is_torchs_name(CalledAs name) {
  return name != CalledAs::kDtrun;
}

}  // namespace dtrun::launcher
