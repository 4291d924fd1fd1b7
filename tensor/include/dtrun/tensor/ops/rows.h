// Fused operations over rows: all along one dim or the last ones, each read once or from the cache.
// f16 and bf16 are computed in f32 and rounded once. The same bits on every layout, for every
// number of threads. Floating point only. CUDA has an order of its own.
#pragma once

#include <cstdint>
#include <optional>

#include "dtrun/tensor/tensor.h"

namespace dtrun::tensors {

LocalTensor softmax(const LocalTensor& a, int dim);
LocalTensor log_softmax(const LocalTensor& a, int dim);
/// @param output of softmax or log_softmax
LocalTensor softmax_backward(const LocalTensor& grad, const LocalTensor& output, int dim);
LocalTensor log_softmax_backward(const LocalTensor& grad, const LocalTensor& output, int dim);

/// Over the last dims, as many as weight and bias have; without both: `dims` of them.
struct NormOptions {
  std::optional<LocalTensor> weight = {};
  std::optional<LocalTensor> bias = {};  ///< not of rms_norm
  double eps = 1e-5;
  int dims = 1;
};
/// What a gradient needs: one number a row; f64 for f64, else f32.
struct Normalized {
  LocalTensor output;
  LocalTensor mean;  ///< not of rms_norm
  LocalTensor inverse_deviation;
};
/// (a - mean) / sqrt(variance + eps) * weight + bias
Normalized layer_norm(const LocalTensor& a, const NormOptions& options);
/// a / sqrt(mean of squares + eps) * weight
Normalized rms_norm(const LocalTensor& a, const NormOptions& options);

struct NormGradients {
  LocalTensor a;
  LocalTensor weight;  ///< undefined where there is none
  LocalTensor bias;
};
NormGradients layer_norm_backward(const LocalTensor& grad, const LocalTensor& a,
                                  const Normalized& forward, const NormOptions& options);
/// Without what the forward kept: mean and deviation once more, while the row is in the cache.
NormGradients layer_norm_backward(const LocalTensor& grad, const LocalTensor& a,
                                  const NormOptions& options);
NormGradients rms_norm_backward(const LocalTensor& grad, const LocalTensor& a,
                                const NormOptions& options);
NormGradients rms_norm_backward(const LocalTensor& grad, const LocalTensor& a,
                                const Normalized& forward, const NormOptions& options);

/// Of class scores [rows, classes] and the right classes, i64 [rows].
struct CrossEntropy {
  LocalTensor loss;       ///< [rows]; 0 where the class is ignored
  LocalTensor logsumexp;  ///< [rows]; f64 for f64, else f32
};
/// Log-probabilities are not stored. @throws Error kInvalidArgument naming row and class, where a
/// class is not one
CrossEntropy cross_entropy_rows(const LocalTensor& logits, const LocalTensor& target,
                                std::int64_t ignored = -100);
/// Which classes the columns are, where others have the rest.
struct ClassCut {
  std::int64_t first = 0;
  std::int64_t classes = -1;  ///< in all; -1: there are no others
};
/// (softmax - one-hot) * grad, in one pass. @param grad [rows] @param logsumexp over all classes
/// @param target on CUDA not looked at again: the forward, which waits for the device, did
LocalTensor cross_entropy_rows_backward(const LocalTensor& grad, const LocalTensor& logits,
                                        const LocalTensor& target, const LocalTensor& logsumexp,
                                        std::int64_t ignored = -100, ClassCut cut = {});

}  // namespace dtrun::tensors
