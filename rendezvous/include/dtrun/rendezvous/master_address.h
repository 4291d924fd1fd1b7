// The address by which the workers reach the store of a round. Pure.
#pragma once

#include <string>
#include <vector>

namespace dtrun::rendezvous {

bool is_loopback(const std::string& numeric_address);

/// MASTER_ADDR where the store is on the machine that hosts the rendezvous: the name that the user
/// gave. Where that name means the loopback here (Debian's 127.0.1.1) it is the address at which
/// the others came in, because this node's ranks would otherwise publish the loopback as theirs.
/// @param listening_at numeric
/// @param reached_at the local addresses of the other agents' connections, numeric
std::string master_address(const std::string& endpoint_host, const std::string& listening_at,
                           const std::vector<std::string>& reached_at);

}  // namespace dtrun::rendezvous
