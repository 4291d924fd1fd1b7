#include "autograd/call_text.h"

namespace dtrun::dtensor {
namespace {

std::string text_of(const Spec& spec, DType dtype, const Shape& shape) {
  if (spec) return spec.to_string();
  return std::string(tensors::dtype_short_name(dtype)) + tensors::shape_to_string(shape);
}

}  // namespace

std::string tensor_text(const Tensor& tensor) {
  return text_of(tensor.spec(), tensor.dtype(), tensor.shape());
}

std::string call_text(const Node& node) {
  std::string text(node.name());
  bool is_first = true;
  for (const Edge& edge : node.edges()) {
    text += (is_first ? " of " : " and ") + text_of(edge.spec, edge.dtype, edge.shape);
    is_first = false;
  }
  return text;
}

}  // namespace dtrun::dtensor
