// Row kernels: softmax and its like, of dense rows of f32 or f64. An output may be an input.
#pragma once

#include <cstdint>

namespace dtrun::tensors {

/// Rows of `count` elements, a step apart (elements). Those of a few short rows are computed side
/// by side: a row alone waits for each of its sums.
template <typename A>
struct Rows {
  A* out;
  const A* in;
  std::int64_t out_step;
  std::int64_t in_step;
  std::int64_t rows;
  std::int64_t count;
};

template <typename A>
struct RowKernels {
  static void softmax(const Rows<A>& rows);
  static void log_softmax(const Rows<A>& rows);
  static void softmax_backward(A* out, const A* grad, const A* output, std::int64_t count);
  static void log_softmax_backward(A* out, const A* grad, const A* output, std::int64_t count);
  /// Of each row, to `out`, an element for each.
  static void logsumexp(const Rows<A>& rows);
  /// The greatest element but nans, and the sum of exp(element - greatest), which is nan where an
  /// element is. Where the greatest is infinite, the sum is any.
  struct Exponentials {
    A greatest;
    A sum;
  };
  static Exponentials exponentials(const A* in, std::int64_t count);
  /// out = exp(in - shift) * scale
  static void scaled_exp(A* out, const A* in, A shift, A scale, std::int64_t count);
};

extern template struct RowKernels<float>;
extern template struct RowKernels<double>;

}  // namespace dtrun::tensors
