#include "ranks/guard_link.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>

#include "dtrun/base/error.h"

namespace dtrun::launcher {
namespace {

constexpr std::size_t kMostBytes = 64 << 10;

}  // namespace

GuardLink::Ends GuardLink::make() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0)
    throw base::system_error("make a socket pair", "raise the limit of open files (ulimit -n)");
  return {GuardLink(base::UniqueFd(fds[0])), GuardLink(base::UniqueFd(fds[1]))};
}

void GuardLink::send_bytes(MessageKind kind, const void* value, std::size_t size,
                           const std::string& text, WhenFull when_full) {
  std::string packet(reinterpret_cast<const char*>(&kind), sizeof kind);
  packet.append(static_cast<const char*>(value), size);
  packet.append(text, 0, kMostBytes - packet.size());
  const int flags = MSG_NOSIGNAL | (when_full == WhenFull::kDrop ? MSG_DONTWAIT : 0);
  while (::send(fd_.get(), packet.data(), packet.size(), flags) < 0) {
    // The event loop has made the socket non-blocking, and some hundred ranks that end at once fill
    // it. The other side reads whenever it can.
    pollfd room{fd_.get(), POLLOUT, 0};
    if (errno == EAGAIN && when_full == WhenFull::kDrop) return;
    if (errno == EAGAIN)
      ::poll(&room, 1, -1);
    else if (errno != EINTR)
      return;
  }
}

void GuardLink::end() {
  ::shutdown(fd_.get(), SHUT_WR);
}

std::optional<GuardMessage> GuardLink::receive() {
  const auto packet = std::make_unique_for_overwrite<char[]>(kMostBytes);
  ssize_t n;
  // ECONNRESET: the other side went without reading all we sent; what it said before still comes.
  while ((n = ::recv(fd_.get(), packet.get(), kMostBytes, 0)) < 0 &&
         (errno == EINTR || errno == ECONNRESET)) {
  }
  if (n < static_cast<ssize_t>(sizeof(MessageKind))) return std::nullopt;
  GuardMessage message;
  std::memcpy(&message.kind, packet.get(), sizeof message.kind);
  message.payload.assign(packet.get() + sizeof message.kind,
                         static_cast<std::size_t>(n) - sizeof message.kind);
  return message;
}

}  // namespace dtrun::launcher
