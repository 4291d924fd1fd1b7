#include "dtrun/rendezvous/master_address.h"

namespace dtrun::rendezvous {

bool is_loopback(const std::string& numeric_address) {
  return numeric_address.starts_with("127.") || numeric_address == "::1";
}

std::string master_address(const std::string& endpoint_host, const std::string& listening_at,
                           const std::vector<std::string>& reached_at) {
  const bool wildcard = listening_at == "0.0.0.0" || listening_at == "::";
  if (!is_loopback(listening_at) && !wildcard) return endpoint_host;
  for (const std::string& address : reached_at)
    if (!is_loopback(address)) return address;
  return endpoint_host;
}

}  // namespace dtrun::rendezvous
