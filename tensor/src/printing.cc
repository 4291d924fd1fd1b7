#include <fmt/core.h>

#include "dtrun/tensor/tensor.h"

namespace dtrun::tensors {
namespace {

std::string values_of(const Tensor& tensor) {
  if (tensor.dim() == 0) return fmt::format("{:.4f}", tensor.item());
  std::string text = "[";
  for (std::int64_t i = 0; i < tensor.size(0); ++i) {
    if (i != 0) text += ", ";
    text += values_of(tensor[i]);
  }
  return text + "]";
}

}  // namespace

std::string Tensor::to_string() const {
  return "tensor(" + values_of(to(kCpu)) + ")";
}

}  // namespace dtrun::tensors
