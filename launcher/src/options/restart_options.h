// The options of restarts: how many, of what, when, and after which failures none.
#pragma once

#include "dtrun/rendezvous/round_messages.h"
#include "options/option_values.h"

namespace dtrun::launcher {

/// @throws Error kUsage
void read_restart_options(const OptionValues& values, rendezvous::rounds::RoundSettings& rounds);

}  // namespace dtrun::launcher
