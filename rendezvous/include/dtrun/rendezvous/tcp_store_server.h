// TcpStoreServer: serves the c10d protocol (modern, and the legacy one of PyTorch 1.9 to 2.0, told
// apart by a connection's first bytes) on a listening socket, from an EventLoop. Owned by the agent
// of group rank 0, or by rank 0 of a job started by hand; lives on its loop's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "dtrun/base/event_loop.h"
#include "dtrun/base/unique_fd.h"

namespace dtrun::rendezvous {

struct TcpStoreServerOptions {
  std::size_t max_key_bytes = 8 << 10;
  std::size_t max_value_bytes = 8 << 20;
  std::size_t max_keys_per_request = 1 << 20;
  /// First byte >= 0x80: not a store client but an agent; the connection and the bytes read so far
  /// are handed over. Empty: such connections are closed.
  std::function<void(base::UniqueFd connection, std::string first_bytes)> on_agent;
};

class TcpStoreServer {
 public:
  /// Serves `listener`, a bound and listening socket, until destroyed.
  TcpStoreServer(base::EventLoop& loop, base::UniqueFd listener,
                 TcpStoreServerOptions options = {});
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

  std::uint16_t port() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dtrun::rendezvous
