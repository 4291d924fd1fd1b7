// RadixOrder: sorts the positions of a line's elements by their keys, stably, by a radix sort. Keys
// are unsigned; each byte in which keys differ takes one pass.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace dtrun::tensors {

/// Maps an element of C to a key of the same order: nan comes last, -0 equals 0.
template <typename C>
auto order_key(C value) {
  using Key = std::conditional_t<sizeof(C) == 8, std::uint64_t, std::uint32_t>;
  constexpr Key kHighest = Key{1} << (8 * sizeof(Key) - 1);
  if constexpr (std::is_floating_point_v<C>) {
    const Key bits = std::bit_cast<Key>(value + C{0});  // -0 + 0 is 0
    const Key ordered = (bits & kHighest) != 0 ? ~bits : bits | kHighest;
    return value != value ? std::numeric_limits<Key>::max() : ordered;
  } else if constexpr (std::is_signed_v<C>) {
    return static_cast<Key>(value) ^ kHighest;
  } else {
    return static_cast<Key>(value);
  }
}

template <typename Key>
class RadixOrder {
 public:
  /// Not more than a position counts; of wider keys as many as there can be.
  using Position = Key;
  struct Entry {
    Key key;
    Position position;
    bool operator<(const Entry& other) const {
      return key != other.key ? key < other.key : position < other.position;
    }
  };

  /// @param key_of its key, by position. @return the first `count`; until the next call
  template <typename KeyOf>
  std::span<const Entry> first(std::size_t count, std::size_t length, KeyOf&& key_of) {
    entries_.resize(length);
    for (std::size_t i = 0; i < length; ++i) entries_[i] = {key_of(i), static_cast<Position>(i)};
    if (count < length && length > kSmall) keep_least(count);
    if (entries_.size() <= kSmall) {
      std::sort(entries_.begin(), entries_.end());
    } else {
      sort_by_bytes();
    }
    return {entries_.data(), count};
  }

 private:
  static constexpr std::size_t kSmall = 48;
  static constexpr std::size_t kBytes = sizeof(Key);
  using Counts = std::array<std::size_t, 256>;

  static std::size_t byte_of(Key key, std::size_t byte) { return key >> (8 * byte) & 0xff; }

  /// Drops elements that cannot be among the first `count`, judged by the 11 highest bits that
  /// differ.
  void keep_least(std::size_t count) {
    Key low = entries_[0].key, high = low;
    for (const Entry& entry : entries_) {
      low = std::min(low, entry.key);
      high = std::max(high, entry.key);
    }
    const int shift =
        std::max(0, static_cast<int>(std::bit_width(static_cast<Key>(high - low))) - 11);
    std::array<std::size_t, 2048> places{};
    for (const Entry& entry : entries_) ++places[(entry.key - low) >> shift];
    std::size_t last = 0;
    for (std::size_t seen = places[0]; seen < count; seen += places[++last]) {
    }
    std::erase_if(entries_, [&](const Entry& e) { return (e.key - low) >> shift > last; });
  }

  void sort_by_bytes() {
    std::array<Counts, kBytes> counts{};
    for (const Entry& entry : entries_) {
      for (std::size_t byte = 0; byte < kBytes; ++byte) ++counts[byte][byte_of(entry.key, byte)];
    }
    spare_.resize(entries_.size());
    for (std::size_t byte = 0; byte < kBytes; ++byte) {
      Counts& place = counts[byte];
      if (place[byte_of(entries_[0].key, byte)] == entries_.size()) continue;
      std::size_t next = 0;
      for (std::size_t& each : place) next += std::exchange(each, next);
      for (const Entry& entry : entries_) spare_[place[byte_of(entry.key, byte)]++] = entry;
      entries_.swap(spare_);
    }
  }

  std::vector<Entry> entries_;
  std::vector<Entry> spare_;
};

}  // namespace dtrun::tensors
