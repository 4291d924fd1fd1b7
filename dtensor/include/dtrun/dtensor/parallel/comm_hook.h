// CommHook: how the gradients of a bucket become their mean over the ranks. PyTorch's DDP
// communication hooks.
#pragma once

#include <cstddef>
#include <functional>

#include "dtrun/collectives/process_group.h"

namespace dtrun::dtensor {

/// Gradients of one dtype and device that travel together.
struct GradientBucket {
  /// This rank's gradients, one after the other, and then one number for each of them: 1 where this
  /// rank has a gradient, 0 where it has none. The hook may write to it.
  collectives::LocalTensor numbers;
  std::size_t index;  ///< in the order in which buckets travel, on all ranks
  std::size_t count;  ///< of buckets
  const collectives::ProcessGroup& group;
};

/// Called on all ranks, for one bucket after the other: starts the communication. What it returns
/// is called at the end of backward, waits, and gives the mean over the ranks of all numbers, in
/// the shape and the dtype of the bucket's.
using CommHook = std::function<std::function<collectives::LocalTensor()>(const GradientBucket&)>;

/// The default: an all_reduce in flight.
CommHook all_reduce_hook();
/// Sends bfloat16, which halves the bytes of float32; sums in bfloat16, too.
CommHook bf16_compress_hook();

}  // namespace dtrun::dtensor
