#include "tcp_channel.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace dtrun::collectives::cpu {

namespace {

/// Moves a position towards its end by at most `bytes`; returns how many are left over.
std::size_t advance(std::size_t& position, std::size_t size, std::size_t bytes) {
  const std::size_t taken = std::min(size - position, bytes);
  position += taken;
  return bytes - taken;
}

bool try_again(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == ENOTCONN;
}

}  // namespace

std::size_t TcpSendChannel::write(Bytes first, Bytes second) {
  const Bytes hello = std::as_bytes(std::span(&hello_, 1));
  std::size_t taken = 0;
  // Tried at each look: the kernel tells of room only when a third of the buffer is free, and a
  // large message would stand still until then.
  while (!broken_ && (hello_done_ < sizeof(hello_) || taken < first.size() + second.size())) {
    const std::size_t of_first = std::min(taken, first.size());
    std::array<Bytes, 3> parts = {hello.subspan(hello_done_), first.subspan(of_first),
                                  second.subspan(taken - of_first)};
    std::array<iovec, 3> vectors{};
    for (std::size_t i = 0; i < parts.size(); ++i)
      vectors[i] = {const_cast<std::byte*>(parts[i].data()), parts[i].size()};
    msghdr message{};
    message.msg_iov = vectors.data();
    message.msg_iovlen = vectors.size();
    const ssize_t sent = ::sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && try_again(errno)) break;
    if (sent < 0) {
      broken_ = true;
      break;
    }
    taken += advance(hello_done_, sizeof(hello_), static_cast<std::size_t>(sent));
  }
  return taken;
}

std::size_t TcpReceiveChannel::take_ahead(std::span<std::byte> target) {
  const std::size_t count = std::min(unread_.size(), target.size());
  if (count == 0) return 0;
  std::memcpy(target.data(), unread_.data(), count);
  unread_ = unread_.subspan(count);
  return count;
}

std::size_t TcpReceiveChannel::read(std::span<std::byte> target) {
  std::size_t filled = take_ahead(target);
  while (!broken_ && readiness_.is_ready() && filled < target.size()) {
    const std::span<std::byte> rest = target.subspan(filled);
    std::array<iovec, 2> vectors = {iovec{rest.data(), rest.size()},
                                    iovec{ahead_.get(), kAheadBytes}};
    msghdr message{};
    message.msg_iov = vectors.data();
    message.msg_iovlen = vectors.size();
    const ssize_t count = ::recvmsg(fd_.get(), &message, MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && try_again(errno)) {
      readiness_.exhaust();
      break;
    }
    if (count <= 0) {
      broken_ = true;
      break;
    }
    const std::size_t bytes = static_cast<std::size_t>(count);
    filled += std::min(bytes, rest.size());
    // Fewer than there was room for: all that had come. What comes from now on is told. Of a large
    // message more comes at once, so it is asked for until there is none.
    const bool is_all = bytes < rest.size() + kAheadBytes;
    if (is_all && target.size() - filled <= kAheadBytes) readiness_.exhaust();
    if (bytes > rest.size()) unread_ = {ahead_.get(), bytes - rest.size()};
  }
  return filled;
}

}  // namespace dtrun::collectives::cpu
