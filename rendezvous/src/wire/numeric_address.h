// A connection to a numeric address, begun without asking any name server.
#pragma once

#include <cstdint>
#include <string>

#include "dtrun/base/unique_fd.h"

namespace dtrun::rendezvous {

/// "127.0.0.1", "fe80::1%eth0"; not a name.
bool is_numeric(const std::string& host);

/// A non-blocking socket that is connecting, or connected. Invalid, with the reason in `why`, where
/// the attempt fails at once.
base::UniqueFd start_connecting(const std::string& numeric, std::uint16_t port, std::string& why);

}  // namespace dtrun::rendezvous
