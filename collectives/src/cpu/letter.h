// Letter: a short message as one cache line shows it: what its receiver asks of a header, and the
// payload. Each line takes as long from core to core as a short call. The same message lies among
// the bytes of its channel as any other does, for whoever does not look at lines. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "message.h"

namespace dtrun::collectives::cpu {

struct Letter {
  static constexpr std::size_t kWords = 4;
  static constexpr std::size_t kMostPayload = kWords * sizeof(std::uint64_t);
  static constexpr std::size_t kMostMessage = sizeof(MessageHeader) + kMostPayload;

  std::uint64_t head = 0;  ///< tag, dtype and bytes
  std::uint64_t payload[kWords];

  static constexpr bool may_hold(std::size_t payload_bytes) {
    return payload_bytes <= kMostPayload;
  }
  /// @param bytes of the payload, which may_hold() is true of
  static std::uint64_t head_of(std::uint32_t tag, tensors::DType dtype, std::size_t bytes) {
    return tag | std::uint64_t{static_cast<std::uint8_t>(dtype)} << 32 |
           std::uint64_t{bytes} << kBytesAt;
  }
  static Letter of(std::uint32_t tag, tensors::DType dtype, Bytes payload) {
    Letter letter;
    letter.head = head_of(tag, dtype, payload.size());
    if (payload.empty()) return letter;
    letter.payload[letter.words() - 1] = 0;  // which may be filled in part
    std::memcpy(letter.payload, payload.data(), payload.size());
    return letter;
  }
  std::size_t payload_bytes() const { return head >> kBytesAt; }
  /// In a channel.
  std::size_t message_bytes() const { return sizeof(MessageHeader) + payload_bytes(); }
  std::size_t words() const {
    return (payload_bytes() + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t);
  }

 private:
  static constexpr int kBytesAt = 40;
};

}  // namespace dtrun::collectives::cpu
