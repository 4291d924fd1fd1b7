// AgentSession: one side of a connection between an agent and the head, without its socket: first
// the handshake, then whole messages; bytes in, bytes out. Not thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "dtrun/rendezvous/round_messages.h"
#include "proof/agent_handshake.h"

namespace dtrun::rendezvous {

class AgentSession {
 public:
  enum class State {
    kHandshake,
    kOpen,
    kRefused,  ///< failure() says by whom and why
    kFailed,   ///< failure() says what is wrong with the other side
  };

  /// Between two who know each other already.
  AgentSession() = default;
  explicit AgentSession(AgentHandshake handshake);

  /// How much to read at once.
  std::size_t appetite() const;
  State receive(std::string_view bytes);
  /// The question that its handshake has for a realm, once; the answer goes to hear(). Empty if
  /// there is none.
  AgentHandshake::RealmQuestion take_question();
  State hear(AgentHandshake::RealmAnswer answer);
  /// The next whole message. Message is AgentMessage at the head, HeadMessage at an agent.
  template <typename Message>
  std::optional<Message> next();

  void say(const rounds::AgentMessage& message);
  void say(const rounds::HeadMessage& message);
  /// The bytes to send. taken() says how many of them were sent.
  std::string_view unsent() const { return std::string_view(unsent_).substr(sent_); }
  void taken(std::size_t count);
  void drop_unsent();

  State state() const { return state_; }
  const std::string& failure() const { return failure_; }

 private:
  void take_over(AgentHandshake::State handshake);

  State state_ = State::kOpen;
  std::unique_ptr<AgentHandshake> handshake_;  // until it is over
  std::string received_;
  std::size_t read_ = 0;  // of received_
  std::string unsent_;
  std::size_t sent_ = 0;  // of unsent_
  std::string failure_;
};

}  // namespace dtrun::rendezvous
