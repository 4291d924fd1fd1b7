// HostPlace: what a dtrun does to its own process before it runs ranks, or another dtrun, for
// somebody: the folder, the variables, and the line of one node.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dtrun/base/unique_fd.h"
#include "hosts/host_order.h"

namespace dtrun::launcher {

/// Absolute. @throws Error kSystem
std::string own_program_path();

/// @throws Error kUsage, with the option that names it
void enter_folder(const std::string& folder, const std::string& origin);

/// PET_HOSTS and the like: a node's own dtrun starts no other hosts.
std::vector<std::string> variables_of_hosts();

/// The whole line of a node's dtrun.
/// @param listener at which the first node listens already
std::vector<std::string> node_arguments(const HostOrder& order, const HostNode& node,
                                        std::optional<int> listener);

/// What a relay says to its node's dtrun.
struct WordOfRelay {
  std::uint16_t port = 0;     ///< at which the first node listens: there the nodes meet
  base::UniqueFd start_sign;  ///< another line comes by it when all hosts are ready
};

/// In a node's dtrun: waits on standard input for the port. Standard input is /dev/null afterwards.
/// @return nullopt: the relay has ended
std::optional<WordOfRelay> await_port_of_first();

}  // namespace dtrun::launcher
