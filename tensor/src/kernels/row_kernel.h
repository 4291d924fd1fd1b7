// Row kernels: what the fused operations do with one dense row of f32 or f64. An output may be an
// input, but for the `in` of normalize_backward, which is read once more after `out` is written.
#pragma once

#include <cstdint>

namespace dtrun::tensors {

template <typename A>
struct RowKernels {
  static void softmax(A* out, const A* in, std::int64_t count);
  static void log_softmax(A* out, const A* in, std::int64_t count);
  static void softmax_backward(A* out, const A* grad, const A* output, std::int64_t count);
  static void log_softmax_backward(A* out, const A* grad, const A* output, std::int64_t count);
  static A logsumexp(const A* in, std::int64_t count);
  /// The greatest element but nans, and the sum of exp(element - greatest), which is nan where an
  /// element is. Where the greatest is infinite, the sum is any.
  struct Exponentials {
    A greatest;
    A sum;
  };
  static Exponentials exponentials(const A* in, std::int64_t count);
  /// out = exp(in - shift) * scale
  static void scaled_exp(A* out, const A* in, A shift, A scale, std::int64_t count);

  struct Moments {
    A mean;
    A inverse_deviation;
  };
  static Moments moments(const A* in, A eps, std::int64_t count);
  static A inverse_root_mean_square(const A* in, A eps, std::int64_t count);
  enum class Centered { no, yes };
  /// (in - mean) * inverse_deviation * weight + bias; weight and bias may be nullptr
  /// @param centered no: the mean is taken for 0, the deviation for the root of the mean square
  static Moments norm(A* out, const A* in, Centered centered, A eps, const A* weight, const A* bias,
                      std::int64_t count);
  /// Adds this row's to the gradients of weight and bias, where they are not nullptr.
  static void normalize_backward(A* out, const A* grad, const A* in, Moments moments,
                                 const A* weight, A* grad_weight, A* grad_bias, Centered centered,
                                 std::int64_t count);
};

extern template struct RowKernels<float>;
extern template struct RowKernels<double>;

}  // namespace dtrun::tensors
