#include "dtrun/rendezvous/etcd_options.h"

#include <algorithm>

namespace dtrun::rendezvous {

std::vector<base::HostPort> EtcdOptions::parse_endpoints(std::string_view text) {
  constexpr std::uint16_t kEtcdPort = 2379;
  std::vector<base::HostPort> endpoints;
  std::size_t begin = 0;
  do {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    base::HostPort endpoint = base::HostPort::parse(text.substr(begin, end - begin));
    if (!endpoint.port) endpoint.port = kEtcdPort;
    endpoints.push_back(endpoint);
    begin = end + 1;
  } while (begin <= text.size());
  return endpoints;
}

}  // namespace dtrun::rendezvous
