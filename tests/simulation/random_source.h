// The simulator's dice: xoshiro256**, seeded by splitmix64 (Blackman and Vigna), with integer
// distributions of its own, because those of the standard library differ between libraries and a
// seed must mean the same everywhere.
#pragma once

#include <chrono>
#include <cstdint>

namespace dtrun::simulation {

class RandomSource {
 public:
  explicit RandomSource(std::uint64_t seed) {
    for (std::uint64_t& word : words_) {
      seed += 0x9e3779b97f4a7c15ULL;
      word = mixed(seed);
    }
  }

  static std::uint64_t mixed(std::uint64_t value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
    return value ^ (value >> 31);
  }

  std::uint64_t next() {
    const std::uint64_t result = rotated(words_[1] * 5, 7) * 9;
    const std::uint64_t shifted = words_[1] << 17;
    words_[2] ^= words_[0];
    words_[3] ^= words_[1];
    words_[1] ^= words_[2];
    words_[0] ^= words_[3];
    words_[2] ^= shifted;
    words_[3] = rotated(words_[3], 45);
    return result;
  }

  /// 0 .. bound - 1
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(bound));
  }
  /// Both ends included.
  std::int64_t between(std::int64_t low, std::int64_t high) { return low + below(high - low + 1); }
  bool chance(int permille) { return below(1000) < permille; }

  std::chrono::nanoseconds between(std::chrono::nanoseconds low, std::chrono::nanoseconds high) {
    return std::chrono::nanoseconds(between(low.count(), high.count()));
  }
  /// Every order of magnitude is as likely as any other.
  std::chrono::nanoseconds of_any_size(std::chrono::nanoseconds low,
                                       std::chrono::nanoseconds high) {
    int doublings = 0;
    while ((low.count() << (doublings + 1)) <= high.count()) ++doublings;
    const std::int64_t base = low.count() << between(0, doublings);
    return std::chrono::nanoseconds(
        between(base, base * 2 < high.count() ? base * 2 : high.count()));
  }

 private:
  static std::uint64_t rotated(std::uint64_t word, int bits) {
    return (word << bits) | (word >> (64 - bits));
  }

  std::uint64_t words_[4]{};
};

}  // namespace dtrun::simulation
