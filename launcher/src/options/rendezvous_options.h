// The options that say how many nodes there are and how they find each other: --nnodes,
// --node_rank,
// --master_*, --rdzv_*, --local_addr, --port_range, --max_restarts.
#pragma once

#include "options/option_values.h"
#include "options/options.h"

namespace dtrun::launcher {

/// --standalone overrides the options that say where to meet, as in torchrun.
void drop_meeting_options(CommandLine& line, Options& options);

/// @throws Error kUsage
void read_rendezvous_options(const OptionValues& values, Options& options);

/// Refuses contradictions. @throws Error kUsage
void check_rendezvous_options(const OptionValues& values, const Options& options);

/// Refuses an endpoint that is each machine itself. @throws Error kUsage
void check_engine_endpoint(const std::optional<Engine>& engine, const Options& options);

}  // namespace dtrun::launcher
