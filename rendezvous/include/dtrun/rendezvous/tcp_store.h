// TcpStore: the client of a c10d TCP store, ours or PyTorch's (>= 2.2).
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
