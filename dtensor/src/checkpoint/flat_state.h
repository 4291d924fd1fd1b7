// FlatState: all that the parts of a State have, under the names of the checkpoint.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "dtrun/dtensor/checkpoint/plan.h"
#include "dtrun/dtensor/checkpoint/state.h"

namespace dtrun::dtensor::dcp {

struct FlatState {
  nn::Module::NamedTensors tensors = {};
  Values values = {};
  Values rank_values = {};
};

/// Of all modules of the state, by their names in the checkpoint.
nn::Module::NamedTensors parameters_of(const State& state);
/// @throws Error kInvalidArgument for a tensor that is undefined or Partial, and a name that is
/// used twice
FlatState flattened(const State& state);
/// What this rank has of a tensor.
TensorPart part_of_tensor(const std::string& name, const Tensor& tensor);

}  // namespace dtrun::dtensor::dcp
