#include "data/shuffle.h"

namespace dtrun::dtensor::data {

std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  std::uint64_t z = a * 0x9e3779b97f4a7c15 + b + 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

Shuffle::Shuffle(std::int64_t n, std::uint64_t key) : n_(static_cast<std::uint64_t>(n)), key_(key) {
  while (half_bits_ < 31 && (std::uint64_t{1} << (2 * half_bits_)) < n_) ++half_bits_;
}

std::uint64_t Shuffle::once(std::uint64_t number) const {
  // With few numbers there are few functions of a round: 6 of them prefer some orders.
  constexpr std::uint64_t kRounds = 12;
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = number >> half_bits_, right = number & mask;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    const std::uint64_t next = left ^ (mixed(key_ + round, right) & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

std::int64_t Shuffle::operator()(std::int64_t index) const {
  auto number = static_cast<std::uint64_t>(index);
  do {
    number = once(number);
  } while (number >= n_);
  return static_cast<std::int64_t>(number);
}

}  // namespace dtrun::dtensor::data
