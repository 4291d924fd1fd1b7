#include "options/port_range.h"

#include <fmt/core.h>

#include "dtrun/base/env.h"
#include "dtrun/base/error.h"
#include "dtrun/base/socket.h"

namespace dtrun::launcher {
namespace {

using base::Error;
using base::ErrorCode;

std::uint16_t parse_port(std::string_view text) {
  const auto number = base::parse_integer(text);
  if (!number || *number < 1 || *number > 65535)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("must be A:B: '{}' is no port, from 1 to 65535", text));
  return static_cast<std::uint16_t>(*number);
}

}  // namespace

PortRange parse_port_range(std::string_view text) {
  const auto colon = text.find(':');
  const std::uint16_t first = parse_port(text.substr(0, colon));
  if (colon == std::string_view::npos) return {first, first};
  const PortRange range{first, parse_port(text.substr(colon + 1))};
  if (range.first > range.last)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("ends, at {}, before it begins", range.last));
  return range;
}

base::UniqueFd listen_in_range(const std::string& address, PortRange range) {
  if (range.last == 0) return base::listen_tcp(address, 0);
  for (int port = range.first; port <= range.last; ++port)
    if (base::UniqueFd fd =
            base::listen_tcp_unless_taken(address, static_cast<std::uint16_t>(port)))
      return fd;
  throw Error(
      ErrorCode::kSystem,
      fmt::format("no port of --port_range={}:{} is free on {}", range.first, range.last, address),
      "other programs hold them all (ss -ltnp shows them)",
      "a job takes one port on each node, and one more where the nodes meet: widen "
      "the range, or end what is left of other jobs");
}

}  // namespace dtrun::launcher
