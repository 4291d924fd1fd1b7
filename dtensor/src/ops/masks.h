// Masks as positions, for what takes either.
#pragma once

#include <string_view>

#include "autograd/call.h"

namespace dtrun::dtensor {

/// The positions with lists in place of masks.
/// @throws Error kInvalidArgument for a mask that does not fit the dims it stands for
Tensors without_masks(std::string_view op, const Shape& shape, const Tensors& positions);

}  // namespace dtrun::dtensor
