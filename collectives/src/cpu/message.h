// Message: a header and its payload on a channel, sent or received bit by bit as the channel takes
// and gives. The header travels also when there is no payload.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "channel.h"
#include "dtrun/collectives/fingerprint.h"

namespace dtrun::collectives::cpu {

/// Of more than so many bytes a connection may take and bring some only, time after time.
inline constexpr std::size_t kMostBySocket = 8 << 10;

struct MessageHeader {
  static constexpr std::uint32_t kMagic = 0x6567734d;  // "Msge"

  std::uint32_t magic = kMagic;
  std::uint32_t tag = 0;
  std::uint64_t bytes = 0;
  std::uint64_t lent_at = 0;  ///< where the payload lies in the sender's memory; 0: it follows
  Fingerprint fingerprint;

  /// As it lies there, without making an empty one first.
  static MessageHeader at(const std::byte* place);
};
static_assert(sizeof(MessageHeader) == 88);

inline MessageHeader MessageHeader::at(const std::byte* place) {
  std::array<std::byte, sizeof(MessageHeader)> raw;
  std::memcpy(raw.data(), place, raw.size());
  return std::bit_cast<MessageHeader>(raw);
}

/// How far a step got.
struct Progress {
  std::size_t bytes = 0;  ///< header and payload
  std::size_t payload_bytes = 0;

  Progress& operator+=(const Progress& other) {
    bytes += other.bytes;
    payload_bytes += other.payload_bytes;
    return *this;
  }
};

/// Takes a message that has come whole, where its header is the awaited one. Without the state of
/// one that is under way. @param channel which has() header and payload, and begins with that
/// @param is_awaited of the header @return what was taken; nothing: the header is another one, or
/// does not lie in one piece
template <typename IsAwaited>
Progress take_whole_message(ReceiveChannel& channel, std::span<std::byte> target,
                            IsAwaited is_awaited) {
  const std::byte* const front = channel.front(sizeof(MessageHeader));
  if (front == nullptr) return {};
  if (!is_awaited(MessageHeader::at(front))) return {};
  channel.read_behind(sizeof(MessageHeader), target);
  return {sizeof(MessageHeader) + target.size(), target.size()};
}

class OutgoingMessage {
 public:
  /// As least_lent: it is never lent.
  static constexpr std::size_t kNeverLent = std::numeric_limits<std::size_t>::max();

  /// @param least_lent a smaller payload is not lent; 0: as the channel says
  OutgoingMessage(int peer, const Fingerprint& fingerprint, std::uint32_t tag, Bytes payload,
                  std::size_t least_lent = 0)
      : peer_(peer), payload_(payload), least_lent_(least_lent) {
    header_.tag = tag;
    header_.bytes = payload.size();
    header_.fingerprint = fingerprint;
  }

  int peer() const { return peer_; }
  const Fingerprint& fingerprint() const { return header_.fingerprint; }
  bool is_begun() const { return done_ != 0; }
  bool complete() const { return done_ == sizeof(header_) + payload_.size(); }
  /// Nothing is left to be written: the next message may follow.
  bool is_written() const { return complete() || lent_number_ != 0; }
  Progress step(SendChannel& channel) {
    if (complete()) return {};
    const Bytes header = std::as_bytes(std::span(&header_, 1));
    if (!std::exchange(is_begun_, true)) {
      channel.begin(payload_.size());
      const std::size_t least = least_lent_ == 0 ? channel.least_lent() : least_lent_;
      if (payload_.size() >= least && channel.can_lend(payload_))
        header_.lent_at = reinterpret_cast<std::uintptr_t>(payload_.data());
    }
    if (header_.lent_at != 0) return step_lent(channel, header);
    const std::size_t of_header = std::min(done_, header.size());
    const std::size_t of_payload = done_ - of_header;
    const std::size_t taken =
        channel.write(header.subspan(of_header), payload_.subspan(of_payload));
    done_ += taken;
    return {taken, done_ - std::min(done_, header.size()) - of_payload};
  }

 private:
  Progress step_lent(SendChannel& channel, Bytes header) {
    if (lent_number_ == 0) {
      const std::size_t taken = channel.write(header.subspan(done_), {});
      done_ += taken;
      if (done_ == header.size()) lent_number_ = channel.lend();
      return {taken, 0};
    }
    if (!channel.is_returned(lent_number_)) return {};
    done_ += payload_.size();
    return {payload_.size(), payload_.size()};
  }

  int peer_;
  MessageHeader header_;
  Bytes payload_;
  std::size_t least_lent_;
  std::size_t done_ = 0;
  std::uint64_t lent_number_ = 0;
  bool is_begun_ = false;
};

/// A message's way in: first the header; then its reader says where the payload goes.
class IncomingMessage {
 public:
  bool is_begun() const { return header_done_ != 0; }
  bool has_header() const { return header_done_ == sizeof(header_); }
  const MessageHeader& header() const { return header_; }
  bool complete() const { return has_header() && payload_done_ == header_.bytes; }
  /// Becomes the next one, of which nothing has come. The old header stays until then.
  void begin_next() { header_done_ = payload_done_ = 0; }
  Progress step_header(ReceiveChannel& channel) {
    const std::span<std::byte> bytes = std::as_writable_bytes(std::span(&header_, 1));
    const std::size_t count = channel.read(bytes.subspan(header_done_));
    header_done_ += count;
    if (count != 0 && has_header()) channel.begin(header_.bytes);
    return {count, 0};
  }
  /// @param target as large as the payload
  Progress step_payload(ReceiveChannel& channel, std::span<std::byte> target) {
    target = target.subspan(payload_done_);
    const std::size_t count = header_.lent_at == 0
                                  ? channel.read(target)
                                  : channel.fetch(target, header_.lent_at + payload_done_);
    payload_done_ += count;
    if (header_.lent_at != 0 && complete()) channel.give_back();
    return {count, count};
  }

 private:
  MessageHeader header_;
  std::size_t header_done_ = 0;
  std::size_t payload_done_ = 0;
};

}  // namespace dtrun::collectives::cpu
