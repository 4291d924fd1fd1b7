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
  /// Local. Those in f64 stand for whatever dtype the operator takes.
  Tensors inputs;
};

/// @param rows, columns of the matrices, two at least
std::vector<OperatorSample> operator_samples(std::int64_t rows, std::int64_t columns);

}  // namespace dtrun::dtensor
