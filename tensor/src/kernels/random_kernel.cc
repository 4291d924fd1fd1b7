#include "kernels/random_kernel.h"

#include <algorithm>

#include "multiversion.h"

namespace dtrun::tensors {

/// At once: a loop that the compiler does not unroll, for then it makes vectors of it.
constexpr std::int64_t kMostPairs = 128;

// Not in an anonymous namespace: the loader chooses by name.
DTRUN_MULTIVERSION void philox_lanes(std::uint64_t* target, RandomKey key, std::uint64_t first_pair,
                                     std::int64_t pairs) {
  std::uint32_t word0[kMostPairs], word1[kMostPairs], word2[kMostPairs], word3[kMostPairs];
  for (std::int64_t l = 0; l < pairs; ++l) {
    const std::uint64_t pair = first_pair + static_cast<std::uint64_t>(l);
    word0[l] = static_cast<std::uint32_t>(pair);
    word1[l] = static_cast<std::uint32_t>(pair >> 32);
    word2[l] = static_cast<std::uint32_t>(key.stream);
    word3[l] = static_cast<std::uint32_t>(key.stream >> 32);
  }
  auto key0 = static_cast<std::uint32_t>(key.seed);
  auto key1 = static_cast<std::uint32_t>(key.seed >> 32);
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    DTRUN_INDEPENDENT_ROUNDS
    for (std::int64_t l = 0; l < pairs; ++l) {
      const std::uint64_t product0 = std::uint64_t{0xD2511F53} * word0[l];
      const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * word2[l];
      word0[l] = static_cast<std::uint32_t>(product1 >> 32) ^ word1[l] ^ key0;
      word1[l] = static_cast<std::uint32_t>(product1);
      word2[l] = static_cast<std::uint32_t>(product0 >> 32) ^ word3[l] ^ key1;
      word3[l] = static_cast<std::uint32_t>(product0);
    }
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  for (std::int64_t l = 0; l < pairs; ++l) {
    target[2 * l] = std::uint64_t{word1[l]} << 32 | word0[l];
    target[2 * l + 1] = std::uint64_t{word3[l]} << 32 | word2[l];
  }
}

const std::uint64_t* random_bits(std::uint64_t* room, RandomKey key, std::int64_t first,
                                 std::int64_t count) {
  const auto pair = static_cast<std::uint64_t>(first) / 2;
  const std::int64_t skipped = first % 2;
  const std::int64_t pairs = (count + skipped + 1) / 2;
  for (std::int64_t done = 0; done < pairs; done += kMostPairs) {
    philox_lanes(room + 2 * done, key, pair + static_cast<std::uint64_t>(done),
                 std::min(kMostPairs, pairs - done));
  }
  return room + skipped;
}

}  // namespace dtrun::tensors
