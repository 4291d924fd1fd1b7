#include "store_host.h"

#include <thread>

#include "dtrun/base/event_loop.h"
#include "dtrun/base/socket.h"
#include "dtrun/rendezvous/tcp_store_server.h"

namespace dtrun::runtime {

struct StoreHost::Service {
  Service(base::UniqueFd listener, rendezvous::TcpStoreServerOptions options)
      : server(loop, std::move(listener), std::move(options)) {}
  base::EventLoop loop;
  rendezvous::TcpStoreServer server;
  std::thread thread;
};

StoreHost::StoreHost(const std::string& address, std::uint16_t port,
                     std::optional<rendezvous::Token> token) {
  base::UniqueFd listener = base::listen_tcp(address, port);
  port_ = base::local_port(listener.get());
  rendezvous::TcpStoreServerOptions options;
  options.token = std::move(token);
  service_ = std::make_unique<Service>(std::move(listener), std::move(options));
  service_->thread = std::thread([service = service_.get()] { service->loop.run(); });
}

StoreHost::~StoreHost() {
  // Posted: a stop() that came before the thread's run() would be forgotten. After the join the
  // loop's objects belong to this thread again.
  service_->loop.post([service = service_.get()] { service->loop.stop(); });
  service_->thread.join();
}

}  // namespace dtrun::runtime
