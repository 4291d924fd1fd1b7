// CrossedParts: what one rank has on both sides of a crossing, by what becomes of it.
#pragma once

#include <vector>

#include "dtrun/tensor/tensor.h"
#include "mesh/crossing.h"
#include "move/exchange.h"

namespace dtrun::dtensor {

/// Views, in the order of the crossing's boxes.
struct CrossedParts {
  struct Kept {
    tensors::LocalTensor from, into;
  };

  std::vector<Kept> kept;
  std::vector<tensors::LocalTensor> sent;
  std::vector<tensors::LocalTensor> received;

  CrossedParts() = default;
  /// @param local holds crossing.given
  /// @param result holds crossing.wanted
  CrossedParts(const Crossing& crossing, const tensors::LocalTensor& local,
               const tensors::LocalTensor& result) {
    for (const Box& box : crossing.kept)
      kept.push_back(
          {shared_part(local, crossing.given, box), shared_part(result, crossing.wanted, box)});
    sent.reserve(crossing.sent.boxes.size());
    for (const Box& box : crossing.sent.boxes)
      sent.push_back(shared_part(local, crossing.given, box));
    received.reserve(crossing.received.boxes.size());
    for (const Box& box : crossing.received.boxes)
      received.push_back(shared_part(result, crossing.wanted, box));
  }
};

}  // namespace dtrun::dtensor
