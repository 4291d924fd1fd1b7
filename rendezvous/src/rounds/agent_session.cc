#include "rounds/agent_session.h"

#include "rounds/agent_protocol.h"

namespace dtrun::rendezvous {
namespace {

constexpr std::size_t kSessionReadBytes = 16 << 10;

AgentSession::State after(AgentHandshake::State state) {
  switch (state) {
    case AgentHandshake::State::kRunning:
    case AgentHandshake::State::kAsking:
      return AgentSession::State::kHandshake;
    case AgentHandshake::State::kDone:
      return AgentSession::State::kOpen;
    case AgentHandshake::State::kRefused:
      return AgentSession::State::kRefused;
    case AgentHandshake::State::kFailed:
      break;
  }
  return AgentSession::State::kFailed;
}

// An idle connection keeps no buffer.
void forget(std::string& bytes) {
  bytes.clear();
  bytes.shrink_to_fit();
}

}  // namespace

AgentSession::AgentSession(AgentHandshake handshake)
    : state_(State::kHandshake),
      handshake_(std::make_unique<AgentHandshake>(std::move(handshake))),
      unsent_(handshake_->take_output()) {}

std::size_t AgentSession::appetite() const {
  return handshake_ ? AgentHandshake::kMostBytes : kSessionReadBytes;
}

AgentSession::State AgentSession::receive(std::string_view bytes) {
  if (handshake_) take_over(handshake_->receive(bytes));
  if (state_ == State::kOpen) received_ += bytes;
  return state_;
}

AgentHandshake::RealmQuestion AgentSession::take_question() {
  return handshake_ ? handshake_->take_question() : AgentHandshake::RealmQuestion();
}

AgentSession::State AgentSession::hear(AgentHandshake::RealmAnswer answer) {
  if (handshake_) take_over(handshake_->hear(std::move(answer)));
  return state_;
}

void AgentSession::take_over(AgentHandshake::State handshake) {
  state_ = after(handshake);
  unsent_ += handshake_->take_output();
  failure_ = handshake_->failure();
  if (state_ != State::kHandshake) handshake_.reset();
}

template <typename Message>
std::optional<Message> AgentSession::next() {
  if (state_ != State::kOpen || received_.empty()) return std::nullopt;
  std::string_view left = std::string_view(received_).substr(read_);
  std::string failure;
  std::optional<Message> message = take_message<Message>(left, failure);
  if (!failure.empty()) {
    state_ = State::kFailed;
    failure_ = "it sent " + failure;
  }
  read_ = received_.size() - left.size();
  if (left.empty()) {
    forget(received_);
    read_ = 0;
  } else if (!message) {
    received_.erase(0, std::exchange(read_, 0));
  }
  return message;
}

template std::optional<rounds::AgentMessage> AgentSession::next();
template std::optional<rounds::HeadMessage> AgentSession::next();

void AgentSession::say(const rounds::AgentMessage& message) {
  encode(message, unsent_);
}

void AgentSession::say(const rounds::HeadMessage& message) {
  encode(message, unsent_);
}

void AgentSession::taken(std::size_t count) {
  sent_ += count;
  if (sent_ == unsent_.size()) drop_unsent();
}

void AgentSession::drop_unsent() {
  forget(unsent_);
  sent_ = 0;
}

}  // namespace dtrun::rendezvous
