// RendezvousConf: the value of --rdzv_conf, "key=value,key=value". Pure.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "options/command_line.h"
#include "options/options.h"

namespace dtrun::launcher {

enum class StoreType { kTcp, kFile };

struct RendezvousConf {
  std::optional<std::chrono::nanoseconds> join_timeout;  ///< of join_timeout, else of timeout
  std::optional<std::chrono::nanoseconds> last_call_timeout;
  std::optional<std::chrono::nanoseconds> close_timeout;
  std::optional<std::chrono::nanoseconds> keep_alive_interval;
  std::optional<int> keep_alive_max_attempt;
  std::optional<std::chrono::nanoseconds> read_timeout;
  Hosting hosting = Hosting::kByAddress;
  StoreType store_type = StoreType::kTcp;
  EtcdProtocol protocol = EtcdProtocol::kHttp;
  std::string ssl_cert;
  std::string ssl_cert_key;
  std::string ca_cert;
  std::string token_file;
  AgentProof proof = AgentProof::kByPlace;
  std::optional<bool> store_token;
  std::vector<std::string> keys;  ///< those that were given, in order
};

/// @throws Error kUsage that names the key: unknown (with the nearest that there is), given twice,
/// without a value, or with one that it cannot have
RendezvousConf parse_rendezvous_conf(const std::string& text);
/// Reads the option --rdzv_conf, if it is given. @throws as refuse_value() (config_error.h)
RendezvousConf read_rendezvous_conf(const CommandLine& line);

enum class NodeCount { kFixed, kElastic };
/// One text for each given key that has no effect with this rendezvous.
std::vector<std::string> keys_without_effect(const RendezvousConf& conf, Rendezvous rendezvous,
                                             NodeCount nodes);

}  // namespace dtrun::launcher
