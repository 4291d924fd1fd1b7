// PayloadRing: where one rank lays the payloads of its posts that do not fit into them, and which
// of its earlier ones must be read before. Private to the rank: a post says where its payload lies.
// Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "algorithm.h"
#include "post.h"

namespace dtrun::collectives::cpu {

class PayloadRing {
 public:
  /// What a post says of a place counts lines.
  static constexpr std::size_t kLine = 64;
  static_assert(payload_area_bytes(2) / kLine - 1 <= std::numeric_limits<std::uint16_t>::max());

  /// @param bytes as payload_area_bytes() tells
  explicit PayloadRing(std::size_t bytes) : bytes_(bytes) {}

  /// The first turn to which all must have come before so many bytes find room in the next one;
  /// never that one. Who has come to a turn has read all of those before.
  /// @param come all have, as far as is known
  Turn needed(std::size_t bytes, Turn next, Turn come) const {
    const std::uint64_t end = place(bytes, next, come) + rounded(bytes);
    while (end - begins_[come % kMostPosts] > bytes_) ++come;
    return come;
  }

  /// Takes the room. @param come as needed() demands @return where it begins
  std::uint32_t take(std::size_t bytes, Turn next, Turn come) {
    const std::uint64_t begin = place(bytes, next, come);
    begins_[next % kMostPosts] = begin;
    end_ = begin + rounded(bytes);
    return static_cast<std::uint32_t>(begin % bytes_);
  }
  /// The turn has no payload here.
  void skip(Turn next) { begins_[next % kMostPosts] = end_; }

 private:
  static constexpr std::size_t kTwoPlacesBytes = 16 << 10;
  static constexpr std::uint64_t rounded(std::size_t bytes) {
    return (bytes + kLine - 1) / kLine * kLine;
  }
  std::uint64_t place(std::size_t bytes, Turn next, Turn come) const {
    const std::uint64_t left = bytes_ - end_ % bytes_;
    const Turn last = next - 1;
    // Where nobody is behind, two places in turn stay in the caches. Those of long payloads would
    // have to be taken back from the caches of their readers, which takes longer.
    const bool starts_anew = bytes <= kTwoPlacesBytes && come == last &&
                             begins_[last % kMostPosts] % bytes_ >= rounded(bytes);
    return left < rounded(bytes) || (starts_anew && left != bytes_) ? end_ + left : end_;
  }

  const std::size_t bytes_;
  // Positions count all bytes that were ever taken.
  std::uint64_t end_ = 0;
  std::array<std::uint64_t, kMostPosts> begins_{};  ///< by turn
};

}  // namespace dtrun::collectives::cpu
