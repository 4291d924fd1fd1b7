// Random numbers of 64 random bits, and the bits of one element (kernels/random_kernel.h has those
// of many). All compute the same on the host and on CUDA devices.
#pragma once

#include <cstdint>

#include "dtrun/tensor/tensor_options.h"
#include "host_device.h"
#include "philox.h"
#include "whole_double.h"

namespace dtrun::tensors::formulas {
namespace {

/// Of elements 2 * pair and 2 * pair + 1.
struct RandomPair {
  std::uint64_t even;
  std::uint64_t odd;
};
DTRUN_BOTH inline RandomPair random_pair(RandomKey key, std::uint64_t pair) {
  const PhiloxCounter words =
      philox({static_cast<std::uint32_t>(pair), static_cast<std::uint32_t>(pair >> 32),
              static_cast<std::uint32_t>(key.stream), static_cast<std::uint32_t>(key.stream >> 32)},
             {static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32)});
  return {std::uint64_t{words[1]} << 32 | words[0], std::uint64_t{words[3]} << 32 | words[2]};
}

/// A multiple of 2^-bits in [0, 1). @param bits up to 53, of float up to 24 @param unit 2^-bits
template <typename T>
DTRUN_BOTH T uniform_number(std::uint64_t random, int bits, T unit) {
  const std::uint64_t number = random >> (64 - bits);
  if constexpr (sizeof(T) == 8) {
    return whole_double(number) * unit;
  } else {
    return static_cast<T>(static_cast<std::int32_t>(number)) * unit;
  }
}

/// Of [low, low + range): the upper half of the product: of 2^64 equally likely ones, within one of
/// each other.
DTRUN_BOTH inline std::int64_t whole_number(std::uint64_t random, std::int64_t low,
                                            std::uint64_t range) {
  __extension__ using Wide = unsigned __int128;
  const auto chosen = static_cast<std::uint64_t>(Wide{random} * range >> 64);
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + chosen);
}

/// @param dropped how many of 2^53 numbers
DTRUN_BOTH inline bool is_dropped(std::uint64_t random, std::int64_t dropped) {
  return static_cast<std::int64_t>(random >> 11) < dropped;
}

}  // namespace
}  // namespace dtrun::tensors::formulas
