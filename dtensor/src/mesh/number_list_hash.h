// NumberListHash: hashes lists of numbers, for tables that have them as keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace dtrun::dtensor {

struct NumberListHash {
  std::size_t operator()(std::span<const std::int64_t> key) const {
    std::uint64_t hash = 0x9e3779b97f4a7c15;
    for (const std::int64_t word : key) {
      hash = (hash ^ static_cast<std::uint64_t>(word)) * 0xff51afd7ed558ccd;
      hash ^= hash >> 32;
    }
    return hash;
  }
};

}  // namespace dtrun::dtensor
