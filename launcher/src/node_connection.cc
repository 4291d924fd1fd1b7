#include "node_connection.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include <cerrno>

#include "dtrun/base/error.h"
#include "dtrun/base/socket.h"

namespace dtrun::launcher {
namespace {

// A node that vanishes without a word (power, cable) is noticed after about this long.
void notice_silence(int socket) {
  const int on = 1, idle_s = 5, interval_s = 2, probes = 5, unacknowledged_ms = 15000;
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged_ms, sizeof unacknowledged_ms);
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

NodeConnection::NodeConnection(base::EventLoop& loop, Side side, base::UniqueFd socket,
                               std::string received)
    : loop_(loop),
      preamble_missing_(side == Side::kAccepted),
      socket_(std::move(socket)),
      received_(std::move(received)) {
  base::set_nonblocking(socket_.get());
  notice_silence(socket_.get());
  watch_ = std::make_unique<base::FdWatch>(loop_, socket_.get());
  if (side == Side::kConnected) unsent_ = {static_cast<char>(kPreamble), kProtocolVersion};
}

void NodeConnection::start(std::function<void(const NodeMessage&)> on_message,
                           std::function<void(const std::string&)> on_lost) {
  on_message_ = std::move(on_message);
  on_lost_ = std::move(on_lost);
  watch_->on_readable([this] { on_readable(); });
  loop_.post([this, weak = std::weak_ptr<bool>(alive_)] {
    if (weak.expired()) return;
    flush();
    deliver();
  });
}

void NodeConnection::on_readable() {
  char block[4096];
  const ssize_t n = ::recv(socket_.get(), block, sizeof block, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) return lose(n == 0 ? "the connection was closed" : strerrordesc_np(errno));
  received_.append(block, static_cast<std::size_t>(n));
  deliver();
}

// False while it is incomplete.
bool NodeConnection::take_preamble() {
  if (received_.size() < 2) return false;
  const int version = static_cast<unsigned char>(received_[1]);
  if (static_cast<unsigned char>(received_[0]) != kPreamble)
    throw base::Error(base::ErrorCode::kProtocol, "no dtrun agent is at the other end");
  if (version != kProtocolVersion) {
    const std::string text = fmt::format(
        "this node's dtrun speaks version {} of the agents' protocol, node 0's speaks {}", version,
        kProtocolVersion);
    send(Refuse{text});
    throw base::Error(base::ErrorCode::kProtocol, text);
  }
  received_.erase(0, 2);
  preamble_missing_ = false;
  return true;
}

void NodeConnection::deliver() {
  const std::weak_ptr<bool> alive = alive_;
  try {
    if (preamble_missing_ && !take_preamble()) return;
    while (!alive.expired()) {
      const std::optional<NodeMessage> message = take_message(received_);
      if (!message) return;
      on_message_(*message);
    }
  } catch (const base::Error& error) {
    if (!alive.expired() && error.code() == base::ErrorCode::kProtocol) {
      return lose(error.why().empty() ? error.summary()
                                      : fmt::format("{} ({})", error.summary(), error.why()));
    }
    throw;
  }
}

void NodeConnection::send(const NodeMessage& message) {
  if (!watch_) return;
  unsent_ += encode(message);
  flush();
}

void NodeConnection::flush() {
  while (!unsent_.empty()) {
    const ssize_t n =
        ::send(socket_.get(), unsent_.data(), unsent_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    // What the peer has said before it went is still to be read; on_readable() learns of its end.
    if (n < 0 && errno != EAGAIN) unsent_.clear();
    if (n < 0) break;
    unsent_.erase(0, static_cast<std::size_t>(n));
  }
  if (unsent_.empty()) {
    watch_->on_writable(nullptr);
  } else {
    watch_->on_writable([this] { flush(); });
  }
}

void NodeConnection::lose(const std::string& why) {
  watch_.reset();
  const auto on_lost = on_lost_;
  on_lost(why);
}

}  // namespace dtrun::launcher
