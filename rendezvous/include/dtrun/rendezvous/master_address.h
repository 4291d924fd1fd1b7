// By which address the workers reach the store of a round. Pure.
#pragma once

#include <string>
#include <vector>

namespace dtrun::rendezvous {

bool is_loopback(const std::string& numeric_address);

/// MASTER_ADDR where the store is on the machine that hosts the rendezvous: the name that the user
/// gave; but the address at which the others came in where that name means the loopback here
/// (Debian's 127.0.1.1), so that the ranks of this node do not give themselves out under it.
/// @param listening_at numeric
/// @param reached_at the local addresses of the other agents' connections, numeric
std::string master_address(const std::string& endpoint_host, const std::string& listening_at,
                           const std::vector<std::string>& reached_at);

}  // namespace dtrun::rendezvous
