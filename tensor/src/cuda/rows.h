// The fused operations over rows of CUDA tensors: ops/rows.h's, whose callers have checked the
// arguments. As in cuda/kernels.h: enqueued on the current stream, kUnavailable in a build without
// CUDA. A warp or a team of threads a row. Floating point; computed in
// f64 for f64, else in f32. The order of additions depends on the rows' length alone.
#pragma once

#include <cstdint>

#include "dtrun/tensor/ops/rows.h"
#include "dtrun/tensor/tensor.h"

namespace dtrun::tensors::cuda {

enum class SoftmaxForm : std::uint8_t { plain, log };
/// @param dim in [0, rank); a tensor without dims is one row of one element
void softmax_rows(SoftmaxForm form, const LocalTensor& target, const LocalTensor& source, int dim);
void softmax_rows_backward(SoftmaxForm form, const LocalTensor& target, const LocalTensor& grad,
                           const LocalTensor& output, int dim);

enum class NormForm : std::uint8_t { layer, root_mean_square };
/// Of [rows, length]. Means, deviations, weight and bias are contiguous and of the dtype that is
/// computed in; what is undefined is not there.
struct NormTensors {
  LocalTensor mean;
  LocalTensor inverse_deviation;
  LocalTensor weight;
  LocalTensor bias;
};
/// Fills mean (of a layer norm) and inverse_deviation, too.
void norm_rows_forward(NormForm form, const LocalTensor& target, const LocalTensor& source,
                       const NormTensors& tensors, double eps);
/// Mean and deviation once more, where nothing was kept.
void norm_rows_moments(NormForm form, const LocalTensor& source, const NormTensors& tensors,
                       double eps);
void norm_rows_backward(NormForm form, const LocalTensor& target, const LocalTensor& grad,
                        const LocalTensor& source, const NormTensors& tensors);
/// Sums of the rows' gradients of weight and bias, in chunks of rows: [chunks, length] each, of the
/// dtype that is computed in.
struct NormSums {
  LocalTensor weight;
  LocalTensor bias;
};
std::int64_t norm_chunks(std::int64_t rows);
void norm_rows_sums(const NormSums& sums, const LocalTensor& grad, const LocalTensor& source,
                    const NormTensors& tensors);

/// @param chosen i64, contiguous; checked where losses are wanted
void cross_entropy_losses(const CrossEntropy& results, const LocalTensor& logits,
                          const LocalTensor& chosen, std::int64_t ignored);
void cross_entropy_gradients(const LocalTensor& target, const LocalTensor& scales,
                             const LocalTensor& logits, const LocalTensor& chosen,
                             const LocalTensor& logsumexp, std::int64_t ignored,
                             std::int64_t first_class);

}  // namespace dtrun::tensors::cuda
