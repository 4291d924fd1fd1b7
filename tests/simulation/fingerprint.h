// 128 bits that stand for a state of the exhaustive search: among 10^9 states two that differ meet
// with a chance of 10^-21. Numbers go in one by one; nothing is kept of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "random_source.h"

namespace dtrun::simulation {

struct Fingerprint {
  std::uint64_t first = 0x243f6a8885a308d3ULL;
  std::uint64_t second = 0x13198a2e03707344ULL;

  template <typename Number>
  void add(Number number) {
    const auto value = static_cast<std::uint64_t>(number);
    first = RandomSource::mixed(first ^ value);
    second = RandomSource::mixed(second + value * 0x9e3779b97f4a7c15ULL);
  }
  void add(const Fingerprint& other) {
    add(other.first);
    add(other.second);
  }
  friend auto operator<=>(const Fingerprint&, const Fingerprint&) = default;
};

/// 16 bytes for each, at 40 to 80 % of the places.
class FingerprintSet {
 public:
  std::size_t size() const { return size_; }
  /// Whether it is new.
  bool insert(Fingerprint print) {
    if (print == kNone) print.second = 1;
    Fingerprint& place = place_of(print);
    if (place == print) return false;
    place = print;
    if (++size_ * 5 > places_.size() * 4) grow();
    return true;
  }

 private:
  static constexpr Fingerprint kNone{0, 0};

  Fingerprint& place_of(const Fingerprint& print) {
    std::size_t at = print.first & (places_.size() - 1);
    while (places_[at] != kNone && places_[at] != print) at = (at + 1) & (places_.size() - 1);
    return places_[at];
  }

  void grow() {
    std::vector<Fingerprint> old = std::exchange(places_, {});
    places_.assign(old.size() * 2, kNone);
    for (const Fingerprint& print : old)
      if (print != kNone) place_of(print) = print;
  }

  std::vector<Fingerprint> places_ = std::vector<Fingerprint>(1024, kNone);
  std::size_t size_ = 0;
};

}  // namespace dtrun::simulation
