// TcpStore: the client of a c10d TCP store, ours or PyTorch's (>= 2.2). Keys stand in the store
// with a "/" before them, as PyTorch's client writes them, and errors show them so. Thread-safe: a
// thread that waits has a connection of its own. queue_* and list_keys throw kUnavailable where an
// older PyTorch serves. After the store is lost every operation throws kConnection, within seconds.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "dtrun/base/deadline.h"
#include "dtrun/rendezvous/store.h"

namespace dtrun::rendezvous {

struct TcpStoreOptions {
  std::string host;
  std::uint16_t port = 0;
  base::Deadline::Duration connect_timeout = std::chrono::seconds(300);
};

/// Connects, validates, pings. @throws Error kConnection naming host, port, cause and time tried
std::shared_ptr<Store> connect_tcp_store(const TcpStoreOptions& options);

}  // namespace dtrun::rendezvous
