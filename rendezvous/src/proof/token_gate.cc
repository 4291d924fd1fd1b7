#include "proof/token_gate.h"

#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "dtrun/base/socket.h"

namespace dtrun::rendezvous {
namespace {

using base::Deadline;

// The handshake's few bytes find room in the buffer of a socket that has sent nothing yet; a peer
// that has closed even that door is none to wait for.
bool send_whole(int fd, const std::string& bytes) {
  return bytes.empty() || ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
                              static_cast<ssize_t>(bytes.size());
}

}  // namespace

struct TokenGate::Visitor {
  Visitor(base::EventLoop& loop, base::UniqueFd connection, const Token& token, Moment came)
      : since(came),
        fd(std::move(connection)),
        handshake(AgentHandshake::Role::kHead, kStorePurpose, token, fresh_nonce()),
        watch(loop, fd.get()),
        timer(loop) {}

  Moment since;
  base::UniqueFd fd;
  AgentHandshake handshake;
  base::FdWatch watch;  // before fd goes
  base::Timer timer;
};

TokenGate::TokenGate(base::EventLoop& loop, Token token, Deadline::Duration timeout,
                     Admitted admitted)
    : loop_(loop), token_(std::move(token)), timeout_(timeout), admitted_(std::move(admitted)) {}

TokenGate::~TokenGate() = default;

void TokenGate::take(base::UniqueFd connection, const std::string& bytes, Moment since) {
  visitors_.push_back(std::make_unique<Visitor>(loop_, std::move(connection), token_, since));
  const auto visitor = std::prev(visitors_.end());
  (*visitor)->watch.on_readable([this, visitor] { read(visitor); });
  start_timer(visitor);
  receive(visitor, bytes);
}

void TokenGate::start_timer(Visitors::iterator visitor) {
  (*visitor)->timer.start(Deadline::at((*visitor)->since + timeout_),
                          [this, visitor] { end_time(visitor); });
}

// Bytes that came while this process was stopped are read first, and that time counts for no
// client.
void TokenGate::end_time(Visitors::iterator visitor) {
  const Visitor* const who = visitor->get();
  const auto now = Deadline::Clock::now();
  const bool was_away = now - (who->since + timeout_) > kWasAway;
  read(visitor);
  if (!is_here(who)) return;
  if (!was_away) return refuse(visitor, "it did not prove in time that it has the token");
  (*visitor)->since = now;
  start_timer(visitor);
}

bool TokenGate::part_with_one_since(Moment moment) {
  if (visitors_.empty() || visitors_.front()->since > moment) return false;
  const auto first = visitors_.begin();
  const Visitor* const who = first->get();
  read(first);
  if (is_here(who)) refuse(first, "others need its place, and it has not proved anything");
  return true;
}

bool TokenGate::is_here(const Visitor* who) const {
  return std::any_of(visitors_.begin(), visitors_.end(),
                     [&](const auto& visitor) { return visitor.get() == who; });
}

void TokenGate::read(Visitors::iterator visitor) {
  char bytes[AgentHandshake::kMostBytes];
  const ssize_t n = ::recv((*visitor)->fd.get(), bytes, sizeof bytes, MSG_DONTWAIT);
  if (n > 0) return receive(visitor, {bytes, static_cast<std::size_t>(n)});
  if (n == 0) return refuse(visitor, "it went away");
  if (errno != EAGAIN && errno != EINTR) refuse(visitor, strerrordesc_np(errno));
}

void TokenGate::receive(Visitors::iterator visitor, std::string_view bytes) {
  const AgentHandshake::State state = (*visitor)->handshake.receive(bytes);
  const bool sent = send_whole((*visitor)->fd.get(), (*visitor)->handshake.take_output());
  if (state == AgentHandshake::State::kRefused || state == AgentHandshake::State::kFailed)
    return refuse(visitor, (*visitor)->handshake.failure());
  if (!sent) return refuse(visitor, "it does not listen");
  if (state == AgentHandshake::State::kRunning) return;
  // The watch goes before the descriptor gets another.
  base::UniqueFd fd = std::move((*visitor)->fd);
  std::string rest(bytes);
  visitors_.erase(visitor);
  admitted_(std::move(fd), std::move(rest));
}

void TokenGate::refuse(Visitors::iterator visitor, const std::string& why) {
  refusals_.warning("refused " + base::peer_address((*visitor)->fd.get()) + ": " + why);
  visitors_.erase(visitor);
}

}  // namespace dtrun::rendezvous
