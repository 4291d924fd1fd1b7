// HostElection: which of the agents that were started with the same --rdzv_endpoint serves it: the
// one on the machine that the endpoint names. Pure; meeting_point.h finds the facts.
#pragma once

#include <string>
#include <vector>

#include "dtrun/rendezvous/master_address.h"
#include "options/options.h"

namespace dtrun::launcher {

using rendezvous::is_loopback;
using rendezvous::master_address;

/// The endpoint's host as it is seen from this machine.
struct EndpointFacts {
  std::vector<std::string> addresses;      ///< numeric; empty: the name does not resolve here
  std::string resolve_error;               ///< why not
  std::vector<std::string> own_addresses;  ///< of this machine's interfaces
  std::vector<std::string> own_names;      ///< host name, and the whole name where there is one
};

struct HostElection {
  enum class Role { kHost, kMember };
  Role role = Role::kMember;
  std::string reason;          ///< for the operator: "node1 is an address of this machine"
  std::string listen_address;  ///< of the host: numeric
  /// Where to reach the host, also from the host itself: numeric, in the order to try.
  std::vector<std::string> addresses;
};

/// Where a name stands for several machines, all agents put its addresses into the same order. The
/// machine with the first one hosts.
/// @throws Error kConnection when the name does not resolve; kUsage when --node_rank contradicts,
/// or the name is the loopback on every node
HostElection elect_host(const Options& options, const EndpointFacts& facts);

/// The address by which the other nodes reach this one, where no endpoint names it.
struct OwnAddress {
  std::string listen_address;  ///< numeric
  std::string host;            ///< for the others: numeric, or as --local_addr says
  std::string reason;
};
/// @param facts its addresses are those of --local_addr, or else of this machine's name
/// @throws Error kConnection when --local_addr does not resolve, kUsage when it is no address of
/// this machine
OwnAddress choose_own_address(const Options& options, const EndpointFacts& facts);

}  // namespace dtrun::launcher
