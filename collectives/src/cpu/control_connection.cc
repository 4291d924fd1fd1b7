#include "control_connection.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "group_failure.h"

namespace dtrun::collectives::cpu {

namespace {

constexpr std::uint32_t kFrameMagic = 0x6d617246;  // "Fram"
constexpr std::uint32_t kLongestPayload = GroupFailure::kLongestText;

struct FrameHeader {
  std::uint32_t magic = kFrameMagic;
  std::uint32_t kind = 0;
  std::uint64_t group = 0;
  std::uint32_t bytes = 0;
  std::uint32_t reserved = 0;
};

}  // namespace

void ControlConnection::send(const Frame& frame) {
  FrameHeader header;
  header.kind = static_cast<std::uint32_t>(frame.kind);
  header.group = frame.group;
  header.bytes = static_cast<std::uint32_t>(frame.payload.size());
  const std::scoped_lock lock(mutex_);
  outgoing_.append(reinterpret_cast<const char*>(&header), sizeof(header));
  outgoing_ += frame.payload;
  flush_locked();
}

void ControlConnection::flush() {
  const std::scoped_lock lock(mutex_);
  flush_locked();
}

void ControlConnection::flush_locked() {
  while (!outgoing_.empty()) {
    const ssize_t sent =
        ::send(fd_.get(), outgoing_.data(), outgoing_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return;
    if (sent < 0) {
      // The peer has gone. The receiving side reports it.
      outgoing_.clear();
      return;
    }
    outgoing_.erase(0, static_cast<std::size_t>(sent));
  }
}

std::vector<Frame> ControlConnection::receive() {
  char buffer[4096];
  for (;;) {
    const ssize_t count = ::recv(fd_.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (count > 0) {
      incoming_.append(buffer, static_cast<std::size_t>(count));
      continue;
    }
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    // If a peer closes with unread bytes, the connection is reset. Linux reports ECONNRESET once,
    // before the bytes that the peer had sent; those are read after it.
    if (count < 0 && errno == ECONNRESET && open_) {
      open_ = false;
      continue;
    }
    open_ = false;
    break;
  }
  std::vector<Frame> frames;
  std::size_t position = 0;
  while (incoming_.size() - position >= sizeof(FrameHeader)) {
    FrameHeader header;
    std::memcpy(&header, incoming_.data() + position, sizeof(header));
    if (header.magic != kFrameMagic || header.bytes > kLongestPayload) {
      open_ = false;
      break;
    }
    if (incoming_.size() - position < sizeof(header) + header.bytes) break;
    frames.push_back({static_cast<FrameKind>(header.kind), header.group,
                      incoming_.substr(position + sizeof(header), header.bytes)});
    position += sizeof(header) + header.bytes;
  }
  incoming_.erase(0, position);
  return frames;
}

}  // namespace dtrun::collectives::cpu
