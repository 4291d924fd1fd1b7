// Operations over rows: softmax and the losses of classes. A row is never cut between ranks; all
// other dims may be.
#pragma once

#include "dtrun/dtensor/tensor.h"

namespace dtrun::dtensor {

Tensor softmax(const Tensor& a, int dim);
Tensor log_softmax(const Tensor& a, int dim);

enum class Reduction : std::uint8_t { none, mean, sum };

struct LossOptions {
  Reduction reduction = Reduction::mean;
  std::int64_t ignore_index = -100;  ///< a target that counts for nothing, nor in the mean
};
/// Of class scores [rows, classes], or [classes], and the right classes, i64 [rows], or []:
/// -log(softmax). Log-probabilities are not stored. @throws Error kInvalidArgument naming row and
/// class, where a target is no class
Tensor cross_entropy(const Tensor& logits, const Tensor& target, LossOptions options = {});
/// The square of the difference.
Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean);

/// a * weight^T + bias. @param weight [out, in] @param bias [out], or undefined
Tensor linear(const Tensor& a, const Tensor& weight, const Tensor& bias = {});

}  // namespace dtrun::dtensor
