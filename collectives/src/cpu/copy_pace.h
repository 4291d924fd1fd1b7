// CopyPace: whether a rank writes what others will read through its caches, or around them. Before
// a core can write a line that another one has read, it must take it back. Where the cores share no
// cache, that takes several times as long as to write around the caches, from where the others read
// a little later; where they do share one, those others would lose more. A virtual machine may move
// between the two within seconds. So some of the copies are timed. Pure.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace dtrun::collectives::cpu {

class CopyPace {
 public:
  /// Of fewer bytes a question takes too much of the time.
  static constexpr std::size_t kLeastBytes = 1 << 10;
  /// For each cache line, from which on copies through the caches are slow: 7 to 10 ns were seen
  /// where cores share a cache, 27 where they do not, and 3 where the reader uses the same core.
  static constexpr std::chrono::nanoseconds kSlowLine{12};
  static constexpr std::size_t kLine = 64;

  enum class Way : std::uint8_t { cached, around };
  struct Next {
    Way way = Way::cached;
    bool is_timed = false;  ///< note() wants to know how long it takes
  };
  Next next(std::size_t bytes) const {
    const bool is_timed = bytes_ + bytes > cycle() - kTimedBytes;
    return {is_timed ? Way::cached : way_, is_timed};
  }
  /// Of each copy. @param time of one that was to be timed
  void note(std::size_t bytes, std::chrono::nanoseconds time = {}) {
    if (next(bytes).is_timed) {
      const auto lines = static_cast<std::int64_t>(bytes / kLine);
      lines_ += lines;
      // Another thread may have run meanwhile.
      time_ += std::min(time, kMostOfLine * lines);
    }
    bytes_ += bytes;
    if (bytes_ < cycle()) return;
    // Pages that nobody has touched before are slow as well, and only once.
    const bool is_slow = time_ > kSlowLine * lines_;
    around_bytes_ = is_slow && way_ == Way::around ? std::min(2 * around_bytes_, kMostAroundBytes)
                                                   : kCycleBytes;
    way_ = is_slow ? Way::around : Way::cached;
    bytes_ = 0;
    time_ = {};
    lines_ = 0;
  }

 private:
  // Copies of so many bytes, which may be for several readers, are timed in the end of so many. A
  // slow one takes as long as ten around the caches: so fewer are tried where all were slow.
  static constexpr std::size_t kTimedBytes = 256 << 10, kCycleBytes = 2 << 20,
                               kMostAroundBytes = 16 << 20;
  static constexpr std::chrono::nanoseconds kMostOfLine{24};

  std::size_t cycle() const { return way_ == Way::cached ? kCycleBytes : around_bytes_; }

  Way way_ = Way::cached;
  std::size_t around_bytes_ = kCycleBytes;  ///< how long copies go around the caches before a try
  std::size_t bytes_ = 0;                   ///< since the way was chosen
  std::chrono::nanoseconds time_{0};        ///< of those that were timed
  std::int64_t lines_ = 0;
};

}  // namespace dtrun::collectives::cpu
