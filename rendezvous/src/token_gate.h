// TokenGate: the door of a store whose clients must have its token. Each connection goes through an
// AgentHandshake (purpose kStorePurpose) and then on to the store, or is refused and closed. Owned
// by the server; lives on its loop's thread.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>

#include "agent_handshake.h"
#include "dtrun/base/deadline.h"
#include "dtrun/base/event_loop.h"
#include "dtrun/base/unique_fd.h"
#include "dtrun/rendezvous/token.h"
#include "rate_limited_log.h"

namespace dtrun::rendezvous {

class TokenGate {
 public:
  struct Options {
    base::Deadline::Duration timeout;  ///< of one handshake
    std::size_t most_waiting;          ///< beyond it the oldest goes
  };
  /// Takes the connection and what came behind the handshake.
  using Admitted = std::function<void(base::UniqueFd connection, std::string bytes)>;

  TokenGate(base::EventLoop& loop, Token token, const Options& options, Admitted admitted);
  /// Closes those that are still in the door.
  ~TokenGate();
  TokenGate(const TokenGate&) = delete;
  TokenGate& operator=(const TokenGate&) = delete;

  /// @param connection non-blocking
  /// @param bytes what it has sent so far
  void take(base::UniqueFd connection, const std::string& bytes);

 private:
  struct Visitor;
  using Visitors = std::list<std::unique_ptr<Visitor>>;

  void read(Visitors::iterator visitor);
  void receive(Visitors::iterator visitor, std::string_view bytes);
  void refuse(Visitors::iterator visitor, const std::string& why);

  base::EventLoop& loop_;
  const Token token_;
  const Options options_;
  const Admitted admitted_;
  Visitors visitors_;  // oldest first
  RateLimitedLog refusals_{base::log::Component::kStore};
};

}  // namespace dtrun::rendezvous
