// Parameters that forward sees cut along fully_shard()'s axis: parallelize() has cut them along it,
// and its styles bring all ranks' samples to them. Their gradients are sums over all samples when
// they come to the leaves.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "dtrun/dtensor/mesh/device_mesh.h"
#include "dtrun/dtensor/nn/module.h"
#include "dtrun/dtensor/parallel/fully_shard.h"
#include "parallel/hooked_leaf.h"

namespace dtrun::dtensor {

/// How a parameter is kept, and how forward sees it.
struct ParameterWish {
  Placement storage;
  Placement compute;
};
using ParameterWishes = std::map<std::string, ParameterWish>;  ///< by its name

/// Names of those that forward sees cut.
/// @throws Error kInvalidArgument for a `compute` that cannot be: see FullyShardOptions
std::set<std::string> cut_in_forward(const nn::Module& module, const ParameterWishes& wishes,
                                     const DeviceMesh& mesh, const MixedPrecision& precision);

/// Makes sums over ranks means, as the gradients of other parameters are.
class MeanOfCut {
 public:
  MeanOfCut(const nn::Module& module, const std::set<std::string>& names, int ranks);

  /// Hooks the parameters that are not hooked yet.
  void watch();

 private:
  struct Slot {
    Tensor parameter;
    HookedLeaf hooked = {};
  };
  std::vector<Slot> slots_;
  const int ranks_;
};

}  // namespace dtrun::dtensor
