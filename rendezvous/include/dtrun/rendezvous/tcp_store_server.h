// TcpStoreServer: serves the c10d protocol (modern, and the legacy one of PyTorch 1.9 to 2.0, told
// apart by a connection's first bytes) on a listening socket, from an EventLoop. Owned by the agent
// of group rank 0, or by rank 0 of a job started by hand; lives on its loop's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "dtrun/base/deadline.h"
#include "dtrun/base/event_loop.h"
#include "dtrun/base/unique_fd.h"
#include "dtrun/rendezvous/token.h"

namespace dtrun::rendezvous {

/// PyTorch renumbered its operations in 2.1 without a mark on the wire.
/// kNone: a client that does not begin with VALIDATE is refused.
enum class LegacyNumbering { kNone, kTorch19To20, kTorch21 };

struct TcpStoreServerOptions {
  std::size_t max_key_bytes = 8 << 10;
  std::size_t max_value_bytes = 8 << 20;
  std::size_t max_keys_per_request = 1 << 20;
  /// The limit of keys, values, queues, waits, half requests and unsent answers together. A client
  /// whose request would exceed it is closed; stored values stay, and the others go on. Reading and
  /// deleting may use a sixteenth more.
  std::size_t max_store_bytes = std::size_t{2} << 30;
  /// For clients that do not open with the modern handshake.
  LegacyNumbering legacy_numbering = LegacyNumbering::kTorch19To20;
  /// A connection that has not opened the conversation by then is closed. The second, silent
  /// connection of a live legacy client is spared.
  base::Deadline::Duration handshake_timeout = std::chrono::seconds(30);
  /// The most connections that have not opened the conversation or, with a token, not proved that
  /// they have it. Beyond it, and when no file descriptor is left, the oldest is closed.
  /// 0: three quarters of the process's limit of descriptors.
  std::size_t max_newcomers = 0;
  /// First byte >= 0x80: not a store client but an agent; the connection (non-blocking) and the
  /// bytes read so far are handed over. Empty: such connections are closed.
  std::function<void(base::UniqueFd connection, std::string first_bytes)> on_agent = {};
  /// Called when no file descriptor is left: closes one of the connections handed over that has not
  /// proved itself and has been here since `moment` or longer. False: there is none.
  std::function<bool(base::Deadline::Clock::time_point moment)> part_with_agent_since = {};
  /// Where set, clients must prove that they have it (TcpStoreOptions::token) before their first
  /// request; others are closed. PyTorch's clients cannot.
  std::optional<Token> token = std::nullopt;
  /// The advice in the log line about a client that has not proved it.
  std::string token_advice = {};
  /// Called when the store holds a sixteenth of max_store_bytes less than it did: a time to give
  /// pages back to the system.
  std::function<void()> on_shrunk = {};
  /// Called for each client that has opened the conversation; must not destroy the server.
  std::function<void()> on_client = {};
};

class TcpStoreServer {
 public:
  /// Serves `listener`, a bound and listening socket, until destroyed.
  TcpStoreServer(base::EventLoop& loop, base::UniqueFd listener,
                 TcpStoreServerOptions options = {});
  /// Closes every connection: blocked clients see it end.
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

  std::uint16_t port() const;
  /// A new and empty store on the same port, for the next attempt of a job whose port is fixed:
  /// forgets all keys and closes every client, with all that it has sent. The listening socket
  /// stays open, agents' connections too.
  void start_over();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dtrun::rendezvous
