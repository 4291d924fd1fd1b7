#include "store_host.h"

#include <thread>

#include "dtrun/base/event_loop.h"
#include "dtrun/base/socket.h"
#include "dtrun/rendezvous/tcp_store_server.h"

namespace dtrun::runtime {

struct StoreHost::Service {
  explicit Service(base::UniqueFd listener) : server(loop, std::move(listener)) {}
  base::EventLoop loop;
  rendezvous::TcpStoreServer server;
  std::thread thread;
};

StoreHost::StoreHost(const std::string& address, std::uint16_t port) {
  base::UniqueFd listener = base::listen_tcp(address, port);
  port_ = base::local_port(listener.get());
  service_ = std::make_unique<Service>(std::move(listener));
  service_->thread = std::thread([service = service_.get()] { service->loop.run(); });
}

StoreHost::~StoreHost() {
  // Posted: a stop() that came before the thread's run() would be forgotten. After the join the
  // loop's objects belong to this thread again.
  service_->loop.post([service = service_.get()] { service->loop.stop(); });
  service_->thread.join();
}

}  // namespace dtrun::runtime
