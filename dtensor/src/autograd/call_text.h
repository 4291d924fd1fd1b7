// The words in which errors about gradients name a tensor and the call of a node.
#pragma once

#include <string>
#include <string_view>

#include "autograd/node.h"

namespace dtrun::dtensor {

/// "f32[4, 2]", and how it lies on its mesh.
std::string tensor_text(const Tensor& tensor);

/// "mul of f32[4, 2] and f32[4, 2]".
std::string call_text(const Node& node);

}  // namespace dtrun::dtensor
