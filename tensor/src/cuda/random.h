// Random numbers on a CUDA device: the same as on the host. Enqueued on the device's current
// stream.
#pragma once

#include <cstdint>

#include "dtrun/tensor/ops/random.h"

namespace dtrun::tensors::cuda {

enum class RandomForm : std::uint8_t {
  normal,   ///< in f64
  uniform,  ///< in f64 for f64, else in f32
  whole,    ///< in i64
  mask,     ///< 0, or `kept`
};

struct RandomNumbers {
  RandomForm form;
  RandomKey key;
  int bits = 0;              ///< uniform: multiples of 2^-bits
  std::int64_t low = 0;      ///< whole
  std::uint64_t range = 0;   ///< whole
  std::int64_t dropped = 0;  ///< mask: how many of 2^53
  double kept = 0;           ///< mask
  /// mask: what it multiplies, contiguous, of the target's dtype; nullptr: the mask itself
  const void* factors = nullptr;
};

/// Fills a contiguous tensor, which is that block, and converts to its dtype.
/// @throws Error kUnavailable where the block has more than 12 dims that cannot be merged
void fill_random(const LocalTensor& target, const RandomBlock& block, const RandomNumbers& numbers);

}  // namespace dtrun::tensors::cuda
