// PortRange: the ports that an agent may listen on where nobody has named one (--port-range), for
// machines behind a firewall.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dtrun/base/unique_fd.h"

namespace dtrun::launcher {

struct PortRange {
  std::uint16_t first = 0;  ///< 0, with last: any, the kernel's choice
  std::uint16_t last = 0;
};

/// "A:B" or one port. @throws Error kInvalidArgument whose summary completes "--port_range=TEXT
/// ..."
PortRange parse_port_range(std::string_view text);

/// Listens on the first free port of the range.
/// @param address numeric
/// @throws Error kSystem where all are taken, or the address is not of this machine
base::UniqueFd listen_in_range(const std::string& address, PortRange range);

}  // namespace dtrun::launcher
