// RendezvousConf: the value of --rdzv_conf, "key=value,key=value". Pure.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "options.h"

namespace dtrun::launcher {

struct RendezvousConf {
  std::optional<std::chrono::nanoseconds> join_timeout;  ///< of join_timeout, else of timeout
  std::optional<std::chrono::nanoseconds> read_timeout;
  Hosting hosting = Hosting::kByAddress;
};

/// @throws Error kUsage that names the key: unknown (with the list of those there are), given
/// twice, without a value, or with one that it cannot have
RendezvousConf parse_rendezvous_conf(const std::string& text);

}  // namespace dtrun::launcher
