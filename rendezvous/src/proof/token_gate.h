// TokenGate: the door of a store whose clients must have its token. Each connection goes through an
// AgentHandshake (purpose kStorePurpose) and then on to the store, or is refused and closed. Owned
// by the server; lives on its loop's thread.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>

#include "dtrun/base/deadline.h"
#include "dtrun/base/event_loop.h"
#include "dtrun/base/unique_fd.h"
#include "dtrun/rendezvous/token.h"
#include "proof/agent_handshake.h"
#include "wire/rate_limited_log.h"

namespace dtrun::rendezvous {

class TokenGate {
 public:
  /// A timer that comes so late says that the process was stopped, or the machine.
  static constexpr base::Deadline::Duration kWasAway = std::chrono::seconds(1);
  using Moment = base::Deadline::Clock::time_point;
  /// Takes the connection and what came behind the handshake.
  using Admitted = std::function<void(base::UniqueFd connection, std::string bytes)>;

  /// @param timeout for who comes, from when it has connected
  TokenGate(base::EventLoop& loop, Token token, base::Deadline::Duration timeout,
            Admitted admitted);
  /// Closes those that are still in the door.
  ~TokenGate();
  TokenGate(const TokenGate&) = delete;
  TokenGate& operator=(const TokenGate&) = delete;

  /// @param connection non-blocking
  /// @param bytes what it has sent so far
  /// @param since when it connected
  void take(base::UniqueFd connection, const std::string& bytes, Moment since);
  std::size_t size() const { return visitors_.size(); }
  /// The first of those who have been here since then or longer is read once more; it then leaves
  /// or goes on. False if there is none.
  bool part_with_one_since(Moment moment);

 private:
  struct Visitor;
  using Visitors = std::list<std::unique_ptr<Visitor>>;

  void start_timer(Visitors::iterator visitor);
  void end_time(Visitors::iterator visitor);
  bool is_here(const Visitor* visitor) const;
  void read(Visitors::iterator visitor);
  void receive(Visitors::iterator visitor, std::string_view bytes);
  void refuse(Visitors::iterator visitor, const std::string& why);

  base::EventLoop& loop_;
  const Token token_;
  const base::Deadline::Duration timeout_;
  const Admitted admitted_;
  Visitors visitors_;  // oldest first
  RateLimitedLog refusals_{base::log::Component::kStore};
};

}  // namespace dtrun::rendezvous
