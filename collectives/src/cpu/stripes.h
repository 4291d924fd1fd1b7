// Stripes: which bytes of a large payload travel on which of a channel's connections. The payload
// is cut into stripes of kStripeBytes; they go on the connections in turn, and the next payload's
// go on from there. Each connection has a place of its own in the payload, and moves as it can.
// Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace dtrun::collectives::cpu {

/// Of fewer bytes a system call costs more than it carries.
inline constexpr std::size_t kStripeBytes = 128 << 10;
/// A shorter payload stays on the first connection.
inline constexpr std::size_t kLeastStripedBytes = 256 << 10;

class Stripes {
 public:
  explicit Stripes(std::size_t connections) : moved_(connections) {}

  /// The next bytes are a payload of that length.
  void begin(std::size_t payload) {
    first_ = (first_ + (bytes_ + kStripeBytes - 1) / kStripeBytes) % moved_.size();
    bytes_ = payload >= kLeastStripedBytes ? payload : 0;
    passed_ = 0;
    std::ranges::fill(moved_, 0);
  }
  /// Not all of a striped payload has passed.
  bool active() const { return passed_ < bytes_; }

  /// @param data of the payload, from the first byte on that has not passed
  /// @param move (connection, bytes): @return how many of them it has moved, from the front
  /// @return how many more bytes have passed: all before them have moved, too
  template <typename Byte, typename Move>
  std::size_t pass(std::span<Byte> data, Move move) {
    const std::size_t end = passed_ + std::min(data.size(), bytes_ - passed_);
    std::size_t all_before = end;
    for (std::size_t connection = 0; connection < moved_.size(); ++connection) {
      std::size_t place = place_of(connection);
      for (std::size_t asked = 0, count = 0; place < end && asked == count;
           place = place_of(connection)) {
        asked = std::min(kStripeBytes - moved_[connection] % kStripeBytes, end - place);
        count = move(connection, data.subspan(place - passed_, asked));
        moved_[connection] += count;
      }
      all_before = std::min(all_before, place);
    }
    const std::size_t more = all_before - passed_;
    passed_ = all_before;
    return more;
  }

 private:
  /// The first byte of that connection's that has not moved.
  std::size_t place_of(std::size_t connection) const {
    const std::size_t turn = (connection + moved_.size() - first_) % moved_.size();
    const std::size_t stripe = moved_[connection] / kStripeBytes * moved_.size() + turn;
    return stripe * kStripeBytes + moved_[connection] % kStripeBytes;
  }

  std::vector<std::size_t> moved_;  ///< by connection
  std::size_t first_ = 0;           ///< the connection of the payload's first stripe
  std::size_t bytes_ = 0;
  std::size_t passed_ = 0;
};

}  // namespace dtrun::collectives::cpu
