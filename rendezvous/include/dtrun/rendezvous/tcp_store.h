// TcpStore: the client of a c10d TCP store, ours or PyTorch's (>= 2.2). Keys stand in the store
// with a "/" before them, as PyTorch's client writes them, and errors show them so. Thread-safe: a
// thread that waits has a connection of its own. queue_* and list_keys throw kUnavailable where an
// older PyTorch serves.
//
// A store that is lost stays lost: every later operation throws kConnection at once, also where
// another store, an empty one, listens on the same port by then.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "dtrun/base/deadline.h"
#include "dtrun/rendezvous/store.h"
#include "dtrun/rendezvous/token.h"

namespace dtrun::rendezvous {

struct TcpStoreOptions {
  std::string host;
  std::uint16_t port = 0;
  base::Deadline::Duration connect_timeout = std::chrono::seconds(300);
  /// For stores that demand one; only dtrun's do.
  std::optional<Token> token = std::nullopt;
  /// The store is lost when its host answers no packet for so long. A store whose process is
  /// stopped is not lost, as long as its host still takes packets.
  base::Deadline::Duration lost_after = std::chrono::seconds(30);
};

/// Connects, validates, pings; again and again, with jittered pauses, as long as connect_timeout
/// allows. Names are resolved anew each time, all their addresses of both families are tried, and
/// no address is ever turned into a name.
/// @throws Error kConnection naming host, port, cause and time tried; kProtocol at once where the
/// other side is no store, or does not take the token
std::shared_ptr<Store> connect_tcp_store(const TcpStoreOptions& options);

}  // namespace dtrun::rendezvous
