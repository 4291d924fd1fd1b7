#include "rounds/agent_socket.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "dtrun/base/socket.h"

namespace dtrun::rendezvous {
namespace {

// Whether it is dead or only out of reach makes a difference for its workers.
rounds::LossKind loss_kind(int error_number) {
  switch (error_number) {
    case ECONNRESET:  // perhaps by something on the way
      return rounds::LossKind::kReset;
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EHOSTDOWN:
    case ENETDOWN:
      return rounds::LossKind::kSilent;
    default:
      return rounds::LossKind::kGone;
  }
}

}  // namespace

void prepare_agent_socket(int socket) {
  base::set_nonblocking(socket);
  const int on = 1;
  // Fails on the socket pair of the head's own agent, which needs none of it.
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void set_patience(int socket, base::Deadline::Duration patience) {
  using std::chrono::milliseconds;
  const auto limit = std::clamp<std::int64_t>(
      std::chrono::duration_cast<milliseconds>(patience).count(), 1, 1 << 30);
  const auto limit_ms = static_cast<unsigned>(limit);
  ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, sizeof limit_ms);
}

bool is_acknowledged(int socket) {
  int bytes = 0;
  return ::ioctl(socket, SIOCOUTQ, &bytes) == 0 && bytes == 0;
}

std::optional<ConnectionEnd> read_some(int socket, const AgentSession& session,
                                       std::span<char> buffer, std::string_view& received) {
  received = {};
  const std::size_t size = std::min(buffer.size(), session.appetite());
  const ssize_t n = ::recv(socket, buffer.data(), size, MSG_DONTWAIT);
  if (n > 0) received = {buffer.data(), static_cast<std::size_t>(n)};
  if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR))) return std::nullopt;
  if (n == 0) return ConnectionEnd{rounds::LossKind::kGone, "the connection was closed"};
  return ConnectionEnd{loss_kind(errno), strerrordesc_np(errno)};
}

Sent send_unsent(int socket, AgentSession& session) {
  while (!session.unsent().empty()) {
    const std::string_view unsent = session.unsent();
    const ssize_t n = ::send(socket, unsent.data(), unsent.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n >= 0) {
      session.taken(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {
      return Sent::kSome;
    } else if (errno != EINTR) {
      session.drop_unsent();
    }
  }
  return Sent::kAll;
}

}  // namespace dtrun::rendezvous
