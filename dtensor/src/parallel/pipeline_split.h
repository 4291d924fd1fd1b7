// Where the children of a Sequential are cut into the stages of a pipeline.
#pragma once

#include <cstdint>
#include <vector>

#include "dtrun/dtensor/nn/containers.h"

namespace dtrun::dtensor {

/// The first child of each stage but the first: such that the stage with the most parameters has as
/// few as can be; among those, such that the stages' children are as even as can be.
/// @param weights of the children @throws Error kInvalidArgument for fewer children than stages
std::vector<std::int64_t> balanced_cuts(const std::vector<std::int64_t>& weights, int stages);

/// Of each child, its parameters' elements.
std::vector<std::int64_t> child_weights(const nn::SequentialModule& model);

/// The children of each stage, under their names. @throws Error kInvalidArgument for cuts that do
/// not rise, lie outside or are not one less than the stages
std::vector<std::shared_ptr<nn::SequentialModule>> stages_of(const nn::SequentialModule& model,
                                                             const std::vector<std::int64_t>& cuts,
                                                             int stages);

}  // namespace dtrun::dtensor
