// CrossedParts: what one rank has on both sides of a crossing, by what becomes of it.
#pragma once

#include <vector>

#include "dtrun/tensor/tensor.h"

namespace dtrun::dtensor {

struct Crossing;

/// Views, in the order of the crossing's boxes.
struct CrossedParts {
  struct Kept {
    tensors::LocalTensor from, into;
  };

  std::vector<Kept> kept;
  std::vector<tensors::LocalTensor> sent;
  std::vector<tensors::LocalTensor> received;

  /// @param local holds crossing.given
  /// @param result holds crossing.wanted; also a pattern, without memory
  CrossedParts(const Crossing& crossing, const tensors::LocalTensor& local,
               const tensors::LocalTensor& result);
};

}  // namespace dtrun::dtensor
