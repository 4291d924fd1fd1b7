// The options that say how many nodes there are and how they find each other: --nnodes,
// --node_rank, --master_*, --rdzv_*, --local_addr, --port_range, --max_restarts.
#pragma once

#include "options/option_binding.h"
#include "options/options.h"
#include "options/rendezvous_conf.h"

namespace dtrun::launcher {

/// --standalone overrides the options that say where to meet, as in torchrun.
void drop_meeting_options(CommandLine& line, Options& options);

/// @param conf of read_rendezvous_conf(); --join_timeout goes before its own
void bind_rendezvous_options(OptionBinding& binding, const RendezvousConf& conf, Options& options);
/// Sets the options that follow from the bound ones. @throws Error kUsage: they contradict each
/// other
void complete_rendezvous_options(const CommandLine& line, const RendezvousConf& conf,
                                 Options& options);

/// Refuses an endpoint that is each machine itself. @throws Error kUsage
void check_engine_endpoint(const std::optional<Engine>& engine, const Options& options);

}  // namespace dtrun::launcher
