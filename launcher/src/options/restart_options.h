// The options of restarts: how many, of what, when, and after which failures none.
#pragma once

#include "dtrun/rendezvous/round_messages.h"
#include "options/option_binding.h"

namespace dtrun::launcher {

void bind_restart_options(OptionBinding& binding, rendezvous::rounds::RoundSettings& rounds);

}  // namespace dtrun::launcher
