// The options that say how many nodes there are and how they find each other: --nnodes,
// --node_rank,
// --master_*, --rdzv_*, --local_addr, --port_range, --max_restarts.
#pragma once

#include "option_values.h"
#include "options.h"

namespace dtrun::launcher {

/// @throws Error kUsage
void read_rendezvous_options(const OptionValues& values, const base::Environment& environment,
                             Options& options);

/// What contradicts. @throws Error kUsage
void check_rendezvous_options(const OptionValues& values, const base::Environment& environment,
                              const Options& options);

}  // namespace dtrun::launcher
