#include "tcp_channel.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "message.h"

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

/// So few bytes are copied into one run: the kernel takes longer for a list of runs.
constexpr std::size_t kShortBytes = 1024;

using Parts = std::array<Bytes, 3>;

ssize_t send_parts(int fd, const Parts& parts) {
  constexpr int kFlags = MSG_DONTWAIT | MSG_NOSIGNAL;
  if (parts[0].size() + parts[1].size() + parts[2].size() <= kShortBytes) {
    std::array<std::byte, kShortBytes> run;
    std::size_t bytes = 0;
    for (const Bytes& part : parts) {
      if (!part.empty()) std::memcpy(run.data() + bytes, part.data(), part.size());
      bytes += part.size();
    }
    return ::send(fd, run.data(), bytes, kFlags);
  }
  std::array<iovec, 3> vectors{};
  for (std::size_t i = 0; i < parts.size(); ++i)
    vectors[i] = {const_cast<std::byte*>(parts[i].data()), parts[i].size()};
  msghdr message{};
  message.msg_iov = vectors.data();
  message.msg_iovlen = vectors.size();
  return ::sendmsg(fd, &message, kFlags);
}

}  // namespace

std::size_t TcpSendChannel::write(Bytes first, Bytes second) {
  const Bytes hello = std::as_bytes(std::span(&hello_, 1));
  std::size_t taken = 0;
  // Tried at each look: the kernel tells of room only when a third of the buffer is free, and a
  // large message would stand still until then.
  while (!broken_ && (hello_done_ < sizeof(hello_) || taken < first.size() + second.size())) {
    const std::size_t of_first = std::min(taken, first.size());
    const ssize_t sent = send_parts(fd_.get(), {hello.subspan(hello_done_), first.subspan(of_first),
                                                second.subspan(taken - of_first)});
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

ssize_t TcpReceiveChannel::receive(std::span<std::byte> target) {
  std::array<iovec, 2> vectors = {iovec{target.data(), target.size()},
                                  iovec{ahead_.get(), kAheadBytes}};
  msghdr message{};
  message.msg_iov = vectors.data();
  message.msg_iovlen = vectors.size();
  const ssize_t count = ::recvmsg(fd_.get(), &message, MSG_DONTWAIT);
  if (count > static_cast<ssize_t>(target.size()))
    unread_ = {ahead_.get(), static_cast<std::size_t>(count) - target.size()};
  return count;
}

ssize_t TcpReceiveChannel::receive_ahead(std::span<std::byte> target) {
  const ssize_t count = ::recv(fd_.get(), ahead_.get(), kAheadBytes, MSG_DONTWAIT);
  if (count <= 0) return count;
  unread_ = {ahead_.get(), static_cast<std::size_t>(count)};
  take_ahead(target);
  return count;
}

bool TcpReceiveChannel::has(std::size_t bytes) {
  if (unread_.size() < bytes && bytes <= kMostAhead) read_ahead();
  return unread_.size() >= bytes;
}

void TcpReceiveChannel::read_ahead() {
  static_assert(kMostAhead >= sizeof(MessageHeader) + kMostBySocket, "has() asks for that much");
  if (broken_ || !readiness_.may_read()) return;
  const std::size_t known = unread_.size();
  if (known != 0) std::memmove(ahead_.get(), unread_.data(), known);
  unread_ = {ahead_.get(), known};
  const std::size_t room = kMostAhead - known;
  ssize_t count;
  do {
    count = ::recv(fd_.get(), ahead_.get() + known, room, MSG_DONTWAIT);
  } while (count < 0 && errno == EINTR);
  if (count < 0 && try_again(errno)) {
    readiness_.exhaust();
  } else if (count <= 0) {
    broken_ = true;
  } else {
    unread_ = {ahead_.get(), known + static_cast<std::size_t>(count)};
    if (static_cast<std::size_t>(count) < room) readiness_.exhaust();
  }
}

std::size_t TcpReceiveChannel::read(std::span<std::byte> target) {
  std::size_t filled = take_ahead(target);
  while (!broken_ && filled < target.size() && readiness_.may_read()) {
    const std::span<std::byte> rest = target.subspan(filled);
    const bool is_short = rest.size() <= kShortBytes;
    const ssize_t count = is_short ? receive_ahead(rest) : receive(rest);
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
    const bool is_all = bytes < kAheadBytes + (is_short ? 0 : rest.size());
    if (is_all && target.size() - filled <= kAheadBytes) readiness_.exhaust();
  }
  return filled;
}

}  // namespace dtrun::collectives::cpu
