#include "kernels/norm_kernel.h"

#include <algorithm>
#include <cmath>

#include "kernels/row_passes.h"

namespace dtrun::tensors {
namespace {

template <typename A>
using Moments = typename NormKernels<A>::Moments;

/// The kernels with vectors of kBytes.
template <typename A, int kBytes>
struct RowsBy {
  using Centered = typename NormKernels<A>::Centered;

  DTRUN_INLINED static void inverse_root_mean_square(A* result, const A* in, A center, A eps,
                                                     std::int64_t count) {
    const A squares =
        sum_of_row<A, kBytes>(count, ByVectors{[=](auto& y, const auto& x) DTRUN_INLINED_LAMBDA {
                                const auto way = x - center;
                                y = way * way;
                              }},
                              in);
    *result = 1 / std::sqrt(squares / static_cast<A>(count) + eps);
  }

  DTRUN_INLINED static void moments(Moments<A>* result, const A* in, A eps, std::int64_t count) {
    result->mean = sum_of_row<A, kBytes>(count, Itself{}, in) / static_cast<A>(count);
    inverse_root_mean_square(&result->inverse_deviation, in, result->mean, eps, count);
  }

  DTRUN_INLINED static void normalize(A* out, const A* in, const Moments<A>& moments,
                                      const A* weight, const A* bias, std::int64_t count) {
    const A mean = moments.mean;
    const A scale = moments.inverse_deviation;
    if (weight != nullptr && bias != nullptr) {
      map_row<A, kBytes>(out, count,
                         ByVectors{[=](auto& y, const auto& x, const auto& w, const auto& b)
                                       DTRUN_INLINED_LAMBDA { y = (x - mean) * scale * w + b; }},
                         in, weight, bias);
    } else if (weight != nullptr) {
      map_row<A, kBytes>(out, count,
                         ByVectors{[=](auto& y, const auto& x, const auto& w)
                                       DTRUN_INLINED_LAMBDA { y = (x - mean) * scale * w; }},
                         in, weight);
    } else if (bias != nullptr) {
      map_row<A, kBytes>(out, count,
                         ByVectors{[=](auto& y, const auto& x, const auto& b)
                                       DTRUN_INLINED_LAMBDA { y = (x - mean) * scale + b; }},
                         in, bias);
    } else {
      map_row<A, kBytes>(out, count, ByVectors{[=](auto& y, const auto& x) DTRUN_INLINED_LAMBDA {
                           y = (x - mean) * scale;
                         }},
                         in);
    }
  }

  DTRUN_INLINED static void norm(const Rows<A>& all, A* means, A* inverse_deviations,
                                 Centered centered, A eps, const A* weight, const A* bias) {
    for_rows_beside<A>(all, [=](const Rows<A>& rows, std::int64_t first) DTRUN_INLINED_LAMBDA {
      A mean[kMostBeside] = {}, scale[kMostBeside];
      for (std::int64_t r = 0; centered == Centered::yes && r < rows.rows; ++r) {
        mean[r] = sum_of_row<A, kBytes>(rows.count, Itself{}, rows.in + r * rows.in_step) /
                  static_cast<A>(rows.count);
      }
      for (std::int64_t r = 0; r < rows.rows; ++r) {
        inverse_root_mean_square(&scale[r], rows.in + r * rows.in_step, mean[r], eps, rows.count);
      }
      for (std::int64_t r = 0; r < rows.rows; ++r) {
        normalize(rows.out + r * rows.out_step, rows.in + r * rows.in_step, {mean[r], scale[r]},
                  weight, bias, rows.count);
      }
      if (means != nullptr) std::copy_n(mean, rows.rows, means + first);
      std::copy_n(scale, rows.rows, inverse_deviations + first);
    });
  }

  DTRUN_INLINED static void add_parameters(A* grad_weight, A* grad_bias, const A* grad, const A* in,
                                           const Moments<A>& moments, std::int64_t count) {
    const A mean = moments.mean;
    const A scale = moments.inverse_deviation;
    if (grad_weight != nullptr) {
      map_row<A, kBytes>(
          grad_weight, count,
          ByVectors{[=](auto& y, const auto& sum, const auto& g, const auto& x)
                        DTRUN_INLINED_LAMBDA { y = sum + g * ((x - mean) * scale); }},
          grad_weight, grad, in);
    }
    if (grad_bias != nullptr) {
      map_row<A, kBytes>(grad_bias, count,
                         ByVectors{[](auto& y, const auto& sum, const auto& g)
                                       DTRUN_INLINED_LAMBDA { y = sum + g; }},
                         grad_bias, grad);
    }
  }

  DTRUN_INLINED static void weigh(A* out, const A* grad, const A* weight, std::int64_t count) {
    map_row<A, kBytes>(
        out, count,
        ByVectors{[](auto& y, const auto& g, const auto& w) DTRUN_INLINED_LAMBDA { y = g * w; }},
        grad, weight);
  }

  /// @param inner the gradient of what was normalized, before it was weighted
  DTRUN_INLINED static void normalize_backward(A* out, const A* inner, const A* in,
                                               const Moments<A>& moments, Centered centered,
                                               std::int64_t count) {
    const A mean = moments.mean;
    const A scale = moments.inverse_deviation;
    const A share = 1 / static_cast<A>(count);
    const A along =
        share *
        sum_of_row<A, kBytes>(count,
                              ByVectors{[=](auto& y, const auto& g, const auto& x)
                                            DTRUN_INLINED_LAMBDA { y = g * ((x - mean) * scale); }},
                              inner, in);
    const bool is_centered = centered == Centered::yes;
    const A average = is_centered ? share * sum_of_row<A, kBytes>(count, Itself{}, inner) : A{0};
    map_row<A, kBytes>(out, count,
                       ByVectors{[=](auto& y, const auto& g, const auto& x) DTRUN_INLINED_LAMBDA {
                         y = scale * (g - average - (x - mean) * scale * along);
                       }},
                       inner, in);
  }
};

/// What differs by the vectors that the processor has.
template <typename A>
struct KernelsForRegisters {
  using Centered = typename NormKernels<A>::Centered;
  void (*moments)(Moments<A>*, const A*, A, std::int64_t);
  void (*inverse_root_mean_square)(A*, const A*, A, A, std::int64_t);
  void (*norm)(const Rows<A>&, A*, A*, Centered, A, const A*, const A*);
  void (*weigh)(A*, const A*, const A*, std::int64_t);
  void (*add_parameters)(A*, A*, const A*, const A*, const Moments<A>&, std::int64_t);
  void (*normalize_backward)(A*, const A*, const A*, const Moments<A>&, Centered, std::int64_t);
};
#define DTRUN_ROW_KERNELS(Name, bytes, attribute)                                                  \
  template <typename A>                                                                            \
  struct Name {                                                                                    \
    using By = RowsBy<A, bytes>;                                                                   \
    DTRUN_ROW_KERNEL(attribute, moments)                                                           \
    DTRUN_ROW_KERNEL(attribute, inverse_root_mean_square)                                          \
    DTRUN_ROW_KERNEL(attribute, norm)                                                              \
    DTRUN_ROW_KERNEL(attribute, weigh)                                                             \
    DTRUN_ROW_KERNEL(attribute, add_parameters)                                                    \
    DTRUN_ROW_KERNEL(attribute, normalize_backward)                                                \
    static constexpr KernelsForRegisters<A> kAll = {                                               \
        &moments, &inverse_root_mean_square, &norm, &weigh, &add_parameters, &normalize_backward}; \
  };
DTRUN_FOR_REGISTERS(DTRUN_ROW_KERNELS)
#undef DTRUN_ROW_KERNELS

template <typename A>
const KernelsForRegisters<A>& kernels() {
  static const KernelsForRegisters<A>& widest = DTRUN_WIDEST_KERNELS(A);
  return widest;
}

}  // namespace

template <typename A>
typename NormKernels<A>::Moments NormKernels<A>::moments(const A* in, A eps, std::int64_t count) {
  Moments result;
  kernels<A>().moments(&result, in, eps, count);
  return result;
}

template <typename A>
A NormKernels<A>::inverse_root_mean_square(const A* in, A eps, std::int64_t count) {
  A result;
  kernels<A>().inverse_root_mean_square(&result, in, A{0}, eps, count);
  return result;
}

template <typename A>
void NormKernels<A>::norm(const Rows<A>& rows, A* means, A* inverse_deviations, Centered centered,
                          A eps, const A* weight, const A* bias) {
  kernels<A>().norm(rows, means, inverse_deviations, centered, eps, weight, bias);
}

template <typename A>
void NormKernels<A>::normalize_backward(A* out, const A* grad, const A* in, Moments moments,
                                        const A* weight, A* grad_weight, A* grad_bias,
                                        Centered centered, std::int64_t count) {
  const KernelsForRegisters<A>& best = kernels<A>();
  best.add_parameters(grad_weight, grad_bias, grad, in, moments, count);
  if (weight != nullptr) best.weigh(out, grad, weight, count);
  best.normalize_backward(out, weight != nullptr ? out : grad, in, moments, centered, count);
}

template struct NormKernels<float>;
template struct NormKernels<double>;

}  // namespace dtrun::tensors
