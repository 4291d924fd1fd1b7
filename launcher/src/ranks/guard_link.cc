#include "ranks/guard_link.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>

#include "dtrun/base/error.h"

namespace dtrun::launcher {
namespace {

constexpr std::size_t kMostBytes = 64 << 10;

// Room beside a packet for one descriptor.
union FileRoom {
  cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(int))];
};

void add_file(msghdr& packet, FileRoom& room, int file) {
  packet.msg_control = room.bytes;
  packet.msg_controllen = sizeof room.bytes;
  cmsghdr* const head = CMSG_FIRSTHDR(&packet);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof file);
  std::memcpy(CMSG_DATA(head), &file, sizeof file);
}

base::UniqueFd file_of(msghdr& packet) {
  const cmsghdr* const head = CMSG_FIRSTHDR(&packet);
  int file = -1;
  if (head != nullptr && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS)
    std::memcpy(&file, CMSG_DATA(head), sizeof file);
  return base::UniqueFd(file);
}

}  // namespace

GuardLink::Ends GuardLink::make() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0)
    throw base::system_error("make a socket pair", "raise the limit of open files (ulimit -n)");
  return {GuardLink(base::UniqueFd(fds[0])), GuardLink(base::UniqueFd(fds[1]))};
}

void GuardLink::send_bytes(MessageKind kind, const void* value, std::size_t size,
                           const std::string& text, WhenFull when_full, int file) {
  std::string packet(reinterpret_cast<const char*>(&kind), sizeof kind);
  packet.append(static_cast<const char*>(value), size);
  packet.append(text, 0, kMostBytes - packet.size());
  iovec part{packet.data(), packet.size()};
  msghdr head{};
  head.msg_iov = &part;
  head.msg_iovlen = 1;
  FileRoom beside{};
  if (file >= 0) add_file(head, beside, file);
  const int flags = MSG_NOSIGNAL | (when_full == WhenFull::kDrop ? MSG_DONTWAIT : 0);
  while (::sendmsg(fd_.get(), &head, flags) < 0) {
    // The event loop has made the socket non-blocking, and some hundred ranks that end at once fill
    // it. The other side reads whenever it can.
    pollfd room{fd_.get(), POLLOUT, 0};
    if (errno == EAGAIN && when_full == WhenFull::kDrop) return;
    if (errno == EAGAIN) {
      ::poll(&room, 1, -1);
    } else if (errno != EINTR && head.msg_control != nullptr) {
      head.msg_control = nullptr;  // too many descriptors are on their way: the word goes alone
      head.msg_controllen = 0;
    } else if (errno != EINTR) {
      return;
    }
  }
}

void GuardLink::end() {
  ::shutdown(fd_.get(), SHUT_WR);
}

std::optional<GuardMessage> GuardLink::receive() {
  const auto packet = std::make_unique_for_overwrite<char[]>(kMostBytes);
  iovec part{packet.get(), kMostBytes};
  msghdr head{};
  FileRoom beside{};
  ssize_t n;
  const auto receive_packet = [&] {
    head = {};
    head.msg_iov = &part;
    head.msg_iovlen = 1;
    head.msg_control = beside.bytes;
    head.msg_controllen = sizeof beside.bytes;
    return ::recvmsg(fd_.get(), &head, MSG_CMSG_CLOEXEC);
  };
  // ECONNRESET: the other side went without reading all we sent; what it said before still comes.
  while ((n = receive_packet()) < 0 && (errno == EINTR || errno == ECONNRESET)) {
  }
  if (n < static_cast<ssize_t>(sizeof(MessageKind))) return std::nullopt;
  GuardMessage message;
  message.file = file_of(head);
  std::memcpy(&message.kind, packet.get(), sizeof message.kind);
  message.payload.assign(packet.get() + sizeof message.kind,
                         static_cast<std::size_t>(n) - sizeof message.kind);
  return message;
}

}  // namespace dtrun::launcher
