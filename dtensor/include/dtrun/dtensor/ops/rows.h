// Operations over rows: softmax, norms and the losses of classes. A row is not cut between
// ranks, but for the classes of cross_entropy; all other dims may be.
#pragma once

#include <optional>

#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::dtensor {

Tensor softmax(const Tensor& a, int dim);
Tensor log_softmax(const Tensor& a, int dim);

/// (a - mean) / sqrt(variance + eps) * weight + bias over the last dims, those of normalized_shape.
/// Half types are computed in f32. @param weight, bias of that shape, or undefined
Tensor layer_norm(const Tensor& a, const Shape& normalized_shape, const Tensor& weight = {},
                  const Tensor& bias = {}, double eps = 1e-5);
/// a / sqrt(mean of squares + eps) * weight. @param eps not given: the smallest step above 1 of
/// what is computed in, f32 or f64
Tensor rms_norm(const Tensor& a, const Shape& normalized_shape, const Tensor& weight = {},
                std::optional<double> eps = {});

enum class Reduction : std::uint8_t { none, mean, sum };

struct LossOptions {
  Reduction reduction = Reduction::mean;
  std::int64_t ignore_index = -100;  ///< a target that counts for nothing, nor in the mean
  Tensor weight = {};  ///< of each class, [classes]; the mean is over the weights. No gradient
  double label_smoothing = 0;  ///< how much of each target is spread over all classes
};
/// -log(softmax) of class scores [rows, classes, ...], or [classes], and the right classes, i64
/// [rows, ...], or []; or their probabilities, like the scores. Log-probabilities are stored only
/// for smoothing and probabilities. Scores whose classes are cut stay where they are, but for those
/// two: ranks exchange a number a row. @throws Error kInvalidArgument naming row and class, where a
/// target is no class
Tensor cross_entropy(const Tensor& logits, const Tensor& target, const LossOptions& options = {});
/// The same of log-probabilities. label_smoothing is refused
Tensor nll_loss(const Tensor& log_probabilities, const Tensor& target,
                const LossOptions& options = {});
/// The square of the difference.
Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean);

/// a * weight^T + bias. @param weight [out, in] @param bias [out], or undefined
Tensor linear(const Tensor& a, const Tensor& weight, const Tensor& bias = {});

}  // namespace dtrun::dtensor
