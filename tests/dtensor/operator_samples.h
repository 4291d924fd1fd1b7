// A call of every operator of the public headers: what docs/operators.md is made of, and what the
// rules are proved with.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::dtensor {

struct OperatorSample {
  std::string family;
  std::string name;
  std::function<Tensor(const Tensors&)> run;
  /// Local.
  Tensors inputs;
  /// The inputs of this dtype stand for whatever dtype the operator takes.
  DType stand_in = DType::f64;

  /// The inputs, with others for those that stand for any.
  Tensors inputs_in(DType dtype) const;
};

/// @param rows, columns of the matrices; where there are less than two, some calls throw Error
/// kInvalidArgument
std::vector<OperatorSample> operator_samples(std::int64_t rows, std::int64_t columns);

}  // namespace dtrun::dtensor
