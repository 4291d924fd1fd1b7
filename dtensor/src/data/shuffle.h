// Shuffle: a permutation of the numbers below n that is computed number by number, in no memory: a
// Feistel network over as many bits as n needs (Black and Rogaway, "Ciphers with arbitrary finite
// domains", 2002), run again where it leaves the domain. Pure.
#pragma once

#include <cstdint>

namespace dtrun::dtensor::data {

class Shuffle {
 public:
  Shuffle(std::int64_t n, std::uint64_t key);
  /// Where number `index` goes.
  std::int64_t operator()(std::int64_t index) const;

 private:
  std::uint64_t once(std::uint64_t number) const;

  std::uint64_t n_;
  std::uint64_t key_;
  unsigned half_bits_ = 1;
};

/// Mixes two numbers to a key; near ones give far ones (splitmix64).
std::uint64_t mixed(std::uint64_t a, std::uint64_t b);

}  // namespace dtrun::dtensor::data
