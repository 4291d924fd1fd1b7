// 64 random bits for each element, by its index in the whole; two elements share a Philox call, as
// a pair of normal numbers does.
#pragma once

#include <cstdint>

#include "dtrun/tensor/tensor_options.h"
#include "philox.h"

namespace dtrun::tensors {

/// Elements [first, first + count).
inline void random_bits(std::uint64_t* target, RandomKey key, std::int64_t first,
                        std::int64_t count) {
  PhiloxCounter words{};
  for (std::int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<std::uint64_t>(first + i);
    if (i == 0 || index % 2 == 0) {
      const std::uint64_t pair = index / 2;
      words = philox(
          {static_cast<std::uint32_t>(pair), static_cast<std::uint32_t>(pair >> 32),
           static_cast<std::uint32_t>(key.stream), static_cast<std::uint32_t>(key.stream >> 32)},
          {static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32)});
    }
    const std::size_t half = index % 2 * 2;
    target[i] = std::uint64_t{words[half + 1]} << 32 | words[half];
  }
}

}  // namespace dtrun::tensors
