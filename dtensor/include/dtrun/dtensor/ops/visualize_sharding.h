// visualize_sharding: who holds what of a tensor, drawn. Only shards_text communicates. Tensors
// that do not exist are drawn by layout/sharding_picture.h.
#pragma once

#include <string>

#include "dtrun/dtensor/autograd/tensor.h"
#include "dtrun/dtensor/layout/sharding_picture.h"

namespace dtrun::dtensor {

/// Prints the picture on the mesh's rank 0, in colours where standard output is a terminal and
/// NO_COLOR is not set. @throws Error kInvalidArgument for a local tensor
void visualize_sharding(const Tensor& x);
std::string sharding_text(const Tensor& x, Colors colors = Colors::none);
std::string sharding_svg(const Tensor& x);
/// The elements that each rank holds, drawn where the rank stands in the mesh: the last axis goes
/// across, the one before it downwards, and each coordinate of the others has a picture of its own.
/// Collective: all ranks get the text. @throws Error kInvalidArgument for a local tensor, and for a
/// Partial one, whose terms are no elements; kUsage outside of the mesh and in predict_step()
std::string shards_text(const Tensor& x, Tensor::Site site = Tensor::Site::current());

}  // namespace dtrun::dtensor
