// Operations over rows: softmax, norms and classification losses. A row is whole on one rank,
// except for the classes in cross_entropy; all other dims may be sharded.
#pragma once

#include <optional>

#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::dtensor {

Tensor softmax(const Tensor& a, int dim);
Tensor log_softmax(const Tensor& a, int dim);
Tensor softmax(const Tensor& a, int dim, DType dtype);  ///< of a.to(dtype), in that dtype
Tensor log_softmax(const Tensor& a, int dim, DType dtype);

/// (a - mean) / sqrt(variance + eps) * weight + bias over the last dims, those of normalized_shape.
/// Half types are computed in f32. @param weight, bias of that shape, or undefined
Tensor layer_norm(const Tensor& a, const Shape& normalized_shape, const Tensor& weight = {},
                  const Tensor& bias = {}, double eps = 1e-5);
/// a / sqrt(mean of squares + eps) * weight. @param eps default: the machine epsilon of the dtype
/// that is computed in, f32 or f64
Tensor rms_norm(const Tensor& a, const Shape& normalized_shape, const Tensor& weight = {},
                std::optional<double> eps = {});

enum class Reduction : std::uint8_t { none, mean, sum };

struct LossOptions {
  Reduction reduction = Reduction::mean;
  std::int64_t ignore_index = -100;  ///< a target that counts for nothing, nor in the mean
  Tensor weight = {};  ///< of each class, [classes]; the mean is over the weights. No gradient
  double label_smoothing = 0;  ///< how much of each target is spread over all classes
};
/// -log(softmax) of scores [rows, classes, ...] or [classes] at the target. The target is a class,
/// i64 [rows, ...] or [], or probabilities of the scores' shape. Scores that are sharded along the
/// classes stay so: ranks exchange one number a row. With label smoothing, or with probabilities,
/// they are gathered and log-probabilities are stored. @throws Error kInvalidArgument naming row
/// and class where a target is no class
Tensor cross_entropy(const Tensor& logits, const Tensor& target, const LossOptions& options = {});
/// The same for log-probabilities. label_smoothing is refused.
Tensor nll_loss(const Tensor& log_probabilities, const Tensor& target,
                const LossOptions& options = {});
/// The squared difference.
Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean);

/// a * weight^T + bias. @param weight [out, in] @param bias [out], or undefined
Tensor linear(const Tensor& a, const Tensor& weight, const Tensor& bias = {});

}  // namespace dtrun::dtensor
