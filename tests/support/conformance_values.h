// What the ranks of a conformance case hold, and what a reduction of it is: computed plainly, rank
// after rank. The values are small enough for every dtype to hold every result but a mean exactly;
// products of u8 wrap.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dtrun/collectives/reduce_op.h"
#include "dtrun/tensor/tensor.h"

namespace dtrun::conformance {

using collectives::ReduceOp;
using tensors::DType;
using tensors::LocalTensor;
using Values = std::vector<double>;

/// Of a premul_sum; its products, too, are exact in every dtype.
double factor_of(int rank);
/// A rank's elements. @param salt tells the tensors of one case apart
Values values_of(DType dtype, ReduceOp op, int rank, std::int64_t count, int salt = 0);
/// Those of ranks 0 to size - 1, element by element. Integers wrap as their dtype does; their mean
/// is the sum, then truncated towards zero.
Values reduced(DType dtype, ReduceOp op, int size, std::int64_t count, int salt = 0);

enum class Layout { contiguous, strided };
/// strided: every second element of a larger tensor.
LocalTensor make(const Values& values, DType dtype, Layout layout, tensors::Device device);

/// "" where the elements are the expected ones; a mean of floats may be rounded otherwise.
std::string difference(const LocalTensor& actual, const Values& expected,
                       ReduceOp op = ReduceOp::sum);

}  // namespace dtrun::conformance
