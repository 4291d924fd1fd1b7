// Normalization of dense rows of f32 or f64. An output may be an input, but for the `in` of
// normalize_backward, which is read once more after `out` is written.
#pragma once

#include "kernels/row_kernel.h"

namespace dtrun::tensors {

template <typename A>
struct NormKernels {
  struct Moments {
    A mean;
    A inverse_deviation;
  };
  static Moments moments(const A* in, A eps, std::int64_t count);
  static A inverse_root_mean_square(const A* in, A eps, std::int64_t count);
  enum class Centered { no, yes };
  /// (in - mean) * inverse_deviation * weight + bias; weight and bias may be nullptr
  /// @param centered no: the mean is taken for 0, the deviation for the root of the mean square
  /// @param means of each row, as inverse_deviations; nullptr where they are not wanted
  static void norm(const Rows<A>& rows, A* means, A* inverse_deviations, Centered centered, A eps,
                   const A* weight, const A* bias);
  /// Adds this row's to the gradients of weight and bias, where they are not nullptr.
  static void normalize_backward(A* out, const A* grad, const A* in, Moments moments,
                                 const A* weight, A* grad_weight, A* grad_bias, Centered centered,
                                 std::int64_t count);
};

extern template struct NormKernels<float>;
extern template struct NormKernels<double>;

}  // namespace dtrun::tensors
