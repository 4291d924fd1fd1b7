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

}  // namespace

StoreOpened RoundStore::open(int round, Endpoint* endpoint, const HeadReach& reach) {
  const Options& options = plan_.options;
  server_.reset();
  const std::string& local = reach.local_address;
  if (endpoint != nullptr && !options.rounds.elastic() && local.empty()) {
    endpoint->open_store();
    return {round, "", endpoint->port()};
  }
  const std::string address = !local.empty()        ? local
                              : endpoint != nullptr ? endpoint->listening_at()
                                                    : listen_address(reach);
  rendezvous::TcpStoreServerOptions settings;
  settings.on_client = on_client_;
  demand_token(plan_, settings);
  server_ = std::make_unique<rendezvous::TcpStoreServer>(
      loop_, listen_in_range(address, options.ports), std::move(settings));
  return {round, options.local_addr, server_->port()};
}

}  // namespace dtrun::launcher
