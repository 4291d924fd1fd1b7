#include "premul_factor.h"

#include <fmt/core.h>

#include <cstring>

#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/reduce_kernel.h"

namespace dtrun::collectives {

using base::Error;
using base::ErrorCode;
using tensors::DType;
using tensors::LocalTensor;

void require_factor(ReduceOp op, const std::optional<double>& factor) {
  if (op == ReduceOp::premul_sum && !factor)
    throw Error(ErrorCode::kInvalidArgument, "premul_sum has no factor",
                "each rank's elements are multiplied by one before they are summed",
                "give {.factor = 0.5}, or use sum");
  if (op != ReduceOp::premul_sum && factor)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("there is a factor, {}, for a call that is no premul_sum", *factor),
                "no other call multiplies", "use ReduceOp::premul_sum, or leave the factor out");
}

namespace {

double rounded(double factor, DType dtype) {
  if (dtype == DType::f64) return factor;
  auto number = static_cast<float>(factor);
  if (tensors::is_half(dtype)) {
    std::uint16_t half = 0;
    tensors::narrow(dtype, &half, &number, 1);
    tensors::widen(dtype, &number, &half, 1);
  }
  return number;
}

}  // namespace

FactorElement factor_element(double factor, DType dtype) {
  FactorElement element;
  const auto number = static_cast<float>(factor);
  if (dtype == DType::f64) {
    std::memcpy(element.bytes, &factor, sizeof factor);
  } else if (dtype == DType::f32) {
    std::memcpy(element.bytes, &number, sizeof number);
  } else {
    tensors::narrow(dtype, element.bytes, &number, 1);
  }
  return element;
}

void scale_in_place(const LocalTensor& tensor, double factor) {
  tensors::mul_(tensor, rounded(factor, tensor.dtype()));
}

std::vector<LocalTensor> scaled_copies(std::span<const LocalTensor> list, double factor) {
  std::vector<LocalTensor> copies;
  copies.reserve(list.size());
  for (const LocalTensor& tensor : list)
    copies.push_back(tensors::mul(tensor, rounded(factor, tensor.dtype())));
  return copies;
}

}  // namespace dtrun::collectives
