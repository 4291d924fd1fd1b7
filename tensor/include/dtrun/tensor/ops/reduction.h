// Reductions and scans: values, dtypes, errors as PyTorch's, of all dims where none is named. f16
// and bf16 are computed in f32, rounded once. The order of additions depends on the number of
// elements only: the same bits on every layout, for every number of threads, but for the sign of a
// nan of several. CUDA, too, but for scans of < 4096 long lines, p-norm, logsumexp (docs/gpu.md).
#pragma once

#include <vector>

#include "dtrun/tensor/tensor.h"

namespace dtrun::tensors {

/// Integers and bool sum in i64.
LocalTensor sum(const LocalTensor& a);
LocalTensor sum(const LocalTensor& a, const std::vector<int>& dims, bool keepdim = false);
LocalTensor prod(const LocalTensor& a);
LocalTensor prod(const LocalTensor& a, int dim, bool keepdim = false);
/// Floating point only; of no elements nan.
LocalTensor mean(const LocalTensor& a, const std::vector<int>& dims = {}, bool keepdim = false);
/// The sum of squared distances from the mean, divided by the number of elements - correction.
LocalTensor var(const LocalTensor& a, const std::vector<int>& dims = {}, double correction = 1,
                bool keepdim = false);
/// torch.std: the root of var.
LocalTensor stddev(const LocalTensor& a, const std::vector<int>& dims = {}, double correction = 1,
                   bool keepdim = false);
/// torch.linalg.vector_norm: any power, 0 (how many are not 0) and the infinities included.
LocalTensor norm(const LocalTensor& a, double power = 2, const std::vector<int>& dims = {},
                 bool keepdim = false);
LocalTensor logsumexp(const LocalTensor& a, const std::vector<int>& dims = {},
                      bool keepdim = false);

// The greatest and the least: nan is both. Of no elements: Error kInvalidArgument.
LocalTensor amax(const LocalTensor& a, const std::vector<int>& dims = {}, bool keepdim = false);
LocalTensor amin(const LocalTensor& a, const std::vector<int>& dims = {}, bool keepdim = false);
LocalTensor max(const LocalTensor& a);
LocalTensor min(const LocalTensor& a);
/// Of several the first.
struct Extremes {
  LocalTensor values;
  LocalTensor indices;  ///< i64
};
Extremes max(const LocalTensor& a, int dim, bool keepdim = false);
Extremes min(const LocalTensor& a, int dim, bool keepdim = false);
/// i64. Without a dim: in the row-major order of all.
LocalTensor argmax(const LocalTensor& a);
LocalTensor argmin(const LocalTensor& a);
LocalTensor argmax(const LocalTensor& a, int dim, bool keepdim = false);
LocalTensor argmin(const LocalTensor& a, int dim, bool keepdim = false);

/// Whether any or all elements are not 0: bool, and u8 for u8.
LocalTensor any(const LocalTensor& a, const std::vector<int>& dims = {}, bool keepdim = false);
LocalTensor all(const LocalTensor& a, const std::vector<int>& dims = {}, bool keepdim = false);
/// Same shape and same elements, nan equal to nothing (torch.equal: different dtypes promote).
bool equal(const LocalTensor& a, const LocalTensor& b);

// Scans: element i is the sum or product of those up to i. Integers and bool in i64, the others in
// f64, one after the other, rounded at each element.
LocalTensor cumsum(const LocalTensor& a, int dim);
/// Element i is the sum of those from i on: the gradient of cumsum.
LocalTensor reverse_cumsum(const LocalTensor& a, int dim);
LocalTensor cumprod(const LocalTensor& a, int dim);

}  // namespace dtrun::tensors
