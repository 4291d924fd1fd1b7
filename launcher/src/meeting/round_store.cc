#include "meeting/round_store.h"

#include "dtrun/base/socket.h"
#include "meeting/host_election.h"
#include "options/port_range.h"

namespace dtrun::launcher {

using rendezvous::rounds::StoreOpened;

namespace {

// Another agent's machine may be this one, and the head reached by the loopback; the nodes on other
// machines come by another address.
std::string listen_address(const HeadReach& reach) {
  const bool stays_here = reach.host == "localhost" || is_loopback(reach.host);
  if (stays_here || !is_loopback(reach.from)) return reach.from;
  return reach.from.find(':') == std::string::npos ? "0.0.0.0" : "::";
}

// For rank 0, which binds it at all addresses, as PyTorch's store does. It is free as it is told,
// and may be taken before it is bound: nothing holds a port for another process that may not ask
// for SO_REUSEADDR.
std::uint16_t find_free_port(const std::string& address, PortRange range) {
  const char* const all = address.find(':') == std::string::npos ? "0.0.0.0" : "::";
  return base::local_port(listen_in_range(all, range).get());
}

}  // namespace

StoreOpened RoundStore::open(int round, Endpoint* endpoint, const HeadReach& reach) {
  const Options& options = plan_.options;
  server_.reset();
  const std::string& local = reach.local_address;
  const bool by_agent = plan_.store_server == StoreServer::kAgent;
  if (by_agent && endpoint != nullptr && !options.rounds.elastic() && local.empty()) {
    endpoint->open_store();
    return {round, "", endpoint->port()};
  }
  const std::string address = !local.empty()        ? local
                              : endpoint != nullptr ? endpoint->listening_at()
                                                    : listen_address(reach);
  if (!by_agent) return {round, options.local_addr, find_free_port(address, options.ports)};
  rendezvous::TcpStoreServerOptions settings;
  settings.on_client = on_client_;
  demand_token(plan_, settings);
  server_ = std::make_unique<rendezvous::TcpStoreServer>(
      loop_, listen_in_range(address, options.ports), std::move(settings));
  return {round, options.local_addr, server_->port()};
}

}  // namespace dtrun::launcher
