// HostPlan: what --hosts or --hostfile means: which dtrun is started where, with which line. Made
// once, before anything is started.
#pragma once

#include <string>
#include <vector>

#include "dtrun/base/env.h"
#include "hosts/host_order.h"
#include "options/command_line.h"
#include "options/options.h"

namespace dtrun::launcher {

struct HostPlan {
  HostOrder order;         ///< of all nodes
  Options options;         ///< of node 0, as its dtrun will read them
  std::string head_ports;  ///< where node 0 listens: a port, A:B, or 0 for any
};

/// "localhost" and its addresses: another machine on each.
bool names_loopback(const std::string& host);
/// Whether the host is this machine, so that no remote shell is needed. An address is compared as
/// it is written. The resolver, which may be slow, is asked only about a name that begins as this
/// machine's. @param addresses of this machine's interfaces
bool is_this_machine(const std::string& host, const std::vector<std::string>& addresses);

/// @param name argv[0]
/// @param line that names hosts
/// @throws Error kUsage, kNotFound (the hostfile); what a node's dtrun would refuse, too
HostPlan make_host_plan(const std::string& name, const CommandLine& line,
                        const base::Environment& environment);

}  // namespace dtrun::launcher
