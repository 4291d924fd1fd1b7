// AgreedExchange: what one rank gives and gets in an all_to_all of which all ranks know all sizes,
// by a plan that each of them computes. Only the parts that have elements are named, so a call
// costs what it moves, whatever the size of the group; and a rank waits only for those that send it
// something. Borrows.
#pragma once

#include <cstdint>
#include <span>

#include "dtrun/tensor/device.h"
#include "dtrun/tensor/dtype.h"
#include "dtrun/tensor/tensor.h"

namespace dtrun::collectives {

/// Tensor i goes to peers[i], or comes from there: group ranks, none twice and not this one, in the
/// order that begins at this rank's right neighbour.
struct PeerParts {
  std::span<const int> peers = {};
  std::span<const tensors::LocalTensor> tensors = {};
};

struct AgreedExchange {
  std::uint64_t plan = 0;  ///< a hash of it: ranks with different ones disagree
  // Of all parts; a rank may have none.
  tensors::DType dtype = tensors::DType::f32;
  tensors::Device device = tensors::kCpu;
  PeerParts outputs = {};
  PeerParts inputs = {};
};

}  // namespace dtrun::collectives
