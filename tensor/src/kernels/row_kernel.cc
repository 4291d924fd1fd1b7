// Element i of a row goes to lane i mod 64, and lanes are added in pairs: i and i + 32 first. The
// elements behind the last sixteen join when there are 16 lanes left. A pass keeps its lanes in
// registers: a short row takes little more time than its elements.
#include "kernels/row_kernel.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/lane_group.h"
#include "kernels/vector_registers.h"

namespace dtrun::tensors {
namespace {

/// The lanes of a row: as many as hide the time that one addition takes.
constexpr int kRowGroups = 4;
constexpr std::int64_t kRowLanes = kRowGroups * kGroupLanes;

/// Fewer than kGroupLanes elements; those beyond are as good as any.
template <typename A>
struct LastLanes {
  A values[kGroupLanes];
  DTRUN_INLINED LastLanes(const A* source, std::int64_t count) {
    for (std::int64_t i = 0; i < kGroupLanes; ++i) values[i] = source[i < count ? i : 0];
  }
};

/// A function of groups, made of one of vectors: function(result, x...).
template <typename Function>
struct ByVectors {
  Function function;
  template <typename Group, typename... In>
  DTRUN_INLINED void operator()(Group& result, const In&... in) const {
#pragma GCC unroll 8
    for (int v = 0; v < Group::kVectors; ++v) function(result.part[v], in.part[v]...);
  }
};

template <typename A, int kBytes>
struct LoadedGroup {
  LaneGroup<A, kBytes> group;
  DTRUN_INLINED explicit LoadedGroup(const A* from) { load(group, from); }
};
template <typename A, int kBytes, typename Map, typename... In>
DTRUN_INLINED void map_group(LaneGroup<A, kBytes>& result, const Map& map, const In*... in) {
  map(result, LoadedGroup<A, kBytes>(in).group...);
}

template <typename A, int kBytes, typename Map, typename... In>
DTRUN_INLINED void map_row(A* out, std::int64_t count, const Map& map, const In*... in) {
  std::int64_t i = 0;
  LaneGroup<A, kBytes> group;
  for (; i + kGroupLanes <= count; i += kGroupLanes) {
    map_group(group, map, in + i...);
    store(out + i, group);
  }
  if (i == count) return;
  A last[kGroupLanes];
  map_group(group, map, LastLanes<A>(in + i, count - i).values...);
  store(last, group);
  std::copy_n(last, count - i, out + i);
}

/// What a pass does with the numbers that it folds.
enum class Keep { no, yes };

/// Folds map(in...).
/// @param out nullptr where they are not kept
template <typename Join, typename A, int kBytes, Keep kKeep = Keep::no, typename Map,
          typename... In>
DTRUN_INLINED A fold_row(A* out, std::int64_t count, const Map& map, const In*... in) {
  using Group = LaneGroup<A, kBytes>;
  Group lanes[kRowGroups], mapped;
#pragma GCC unroll 4
  for (int g = 0; g < kRowGroups; ++g) {
    for_each_part(lanes[g], [](auto& part, int) DTRUN_INLINED_LAMBDA {
      part = typename Group::Vector{} + Join::template kNeutral<A>;
    });
  }
  const auto take = [&](Group& into, std::int64_t i) DTRUN_INLINED_LAMBDA {
    map_group(mapped, map, in + i...);
    if constexpr (kKeep == Keep::yes) store(out + i, mapped);
    join<Join>(into, mapped);
  };
  std::int64_t i = 0;
  for (; i + kRowLanes <= count; i += kRowLanes) {
#pragma GCC unroll 4
    for (int g = 0; g < kRowGroups; ++g) take(lanes[g], i + g * kGroupLanes);
  }
#pragma GCC unroll 3
  for (int g = 0; g < kRowGroups - 1; ++g) {
    if (i + kGroupLanes > count) break;
    take(lanes[g], i);
    i += kGroupLanes;
  }
  join<Join>(lanes[0], lanes[2]);
  join<Join>(lanes[1], lanes[3]);
  join<Join>(lanes[0], lanes[1]);
  if (i < count) {
    A last[kGroupLanes];
    map_group(mapped, map, LastLanes<A>(in + i, count - i).values...);
    store(last, mapped);
    if constexpr (kKeep == Keep::yes) std::copy_n(last, count - i, out + i);
    std::fill(last + (count - i), last + kGroupLanes, Join::template kNeutral<A>);
    load(mapped, last);
    join<Join>(lanes[0], mapped);
  }
  return joined<Join>(lanes[0]);
}

template <typename A, int kBytes, typename Map, typename... In>
DTRUN_INLINED A sum_of_row(std::int64_t count, const Map& map, const In*... in) {
  return fold_row<AddLanes, A, kBytes>(static_cast<A*>(nullptr), count, map, in...);
}
struct Itself {
  template <typename Group>
  DTRUN_INLINED void operator()(Group& result, const Group& x) const {
    result = x;
  }
};
/// A nan is left out; -infinity where nothing else is to be seen.
template <typename A, int kBytes>
DTRUN_INLINED A greatest_of_row(const A* in, std::int64_t count) {
  return fold_row<ChooseGreater, A, kBytes>(static_cast<A*>(nullptr), count, Itself{}, in);
}

/// exp(x - shift)
template <typename A>
struct Exponential {
  A shift;
  template <typename Group>
  DTRUN_INLINED void operator()(Group& result, const Group& x) const {
    for_each_part(result,
                  [&](auto& part, int v) DTRUN_INLINED_LAMBDA { part = x.part[v] - shift; });
    raise(result);
  }
};
/// Nan where an element is.
template <Keep kKeep, typename A, int kBytes>
DTRUN_INLINED A total_of_exponentials(A* out, const A* in, A shift, std::int64_t count) {
  return fold_row<AddLanes, A, kBytes, kKeep>(out, count, Exponential<A>{shift}, in);
}
template <typename A, int kBytes>
DTRUN_INLINED A log_of_exponentials(const A* in, A shift, std::int64_t count) {
  return std::log(total_of_exponentials<Keep::no, A, kBytes>(nullptr, in, shift, count));
}

template <typename A>
using Moments = typename RowKernels<A>::Moments;
template <typename A>
using Exponentials = typename RowKernels<A>::Exponentials;

/// The kernels with vectors of kBytes.
template <typename A, int kBytes>
struct RowsBy {
  using Centered = typename RowKernels<A>::Centered;

  DTRUN_INLINED static void softmax(A* out, const A* in, std::int64_t count) {
    const A most = greatest_of_row<A, kBytes>(in, count);
    const A scale = 1 / total_of_exponentials<Keep::yes, A, kBytes>(out, in, most, count);
    map_row<A, kBytes>(
        out, count, ByVectors{[=](auto& y, const auto& x) DTRUN_INLINED_LAMBDA { y = x * scale; }},
        out);
  }

  DTRUN_INLINED static void log_softmax(A* out, const A* in, std::int64_t count) {
    // As PyTorch, the greatest element first: a sum of exponentials says nothing of its last bits.
    const A most = greatest_of_row<A, kBytes>(in, count);
    const A shift = log_of_exponentials<A, kBytes>(in, most, count);
    map_row<A, kBytes>(
        out, count,
        ByVectors{[=](auto& y, const auto& x) DTRUN_INLINED_LAMBDA { y = x - most - shift; }}, in);
  }

  DTRUN_INLINED static void exponentials(Exponentials<A>* result, const A* in, std::int64_t count) {
    const A most = greatest_of_row<A, kBytes>(in, count);
    *result = {most, total_of_exponentials<Keep::no, A, kBytes>(nullptr, in, most, count)};
  }

  DTRUN_INLINED static void scaled_exp(A* out, const A* in, A shift, A scale, std::int64_t count) {
    map_row<A, kBytes>(
        out, count,
        [=](auto& y, const auto& x) DTRUN_INLINED_LAMBDA {
          Exponential<A>{shift}(y, x);
          for_each_part(y, [&](auto& part, int) DTRUN_INLINED_LAMBDA { part *= scale; });
        },
        in);
  }

  DTRUN_INLINED static void softmax_backward(A* out, const A* grad, const A* output,
                                             std::int64_t count) {
    const A sum = sum_of_row<A, kBytes>(
        count,
        ByVectors{[](auto& y, const auto& g, const auto& x) DTRUN_INLINED_LAMBDA { y = g * x; }},
        grad, output);
    map_row<A, kBytes>(out, count,
                       ByVectors{[=](auto& y, const auto& g, const auto& x)
                                     DTRUN_INLINED_LAMBDA { y = (g - sum) * x; }},
                       grad, output);
  }

  DTRUN_INLINED static void log_softmax_backward(A* out, const A* grad, const A* output,
                                                 std::int64_t count) {
    const A sum = sum_of_row<A, kBytes>(count, Itself{}, grad);
    map_row<A, kBytes>(
        out, count,
        [=](auto& y, const auto& g, const auto& x) DTRUN_INLINED_LAMBDA {
          Exponential<A>{A{0}}(y, x);
          for_each_part(
              y, [&](auto& part, int v) DTRUN_INLINED_LAMBDA { part = g.part[v] - part * sum; });
        },
        grad, output);
  }

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

  DTRUN_INLINED static void norm(A* out, Moments<A>* result, const A* in, Centered centered, A eps,
                                 const A* weight, const A* bias, std::int64_t count) {
    Moments<A> own{A{0}, A{0}};
    if (centered == Centered::yes) {
      moments(&own, in, eps, count);
    } else {
      inverse_root_mean_square(&own.inverse_deviation, in, A{0}, eps, count);
    }
    *result = own;
    normalize(out, in, own, weight, bias, count);
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
  using Map = void (*)(A*, const A*, std::int64_t);
  using Backward = void (*)(A*, const A*, const A*, std::int64_t);
  Map softmax, log_softmax;
  Backward softmax_backward, log_softmax_backward;
  void (*exponentials)(Exponentials<A>*, const A*, std::int64_t);
  void (*scaled_exp)(A*, const A*, A, A, std::int64_t);
  void (*moments)(Moments<A>*, const A*, A, std::int64_t);
  void (*inverse_root_mean_square)(A*, const A*, A, A, std::int64_t);
  void (*norm)(A*, Moments<A>*, const A*, typename RowKernels<A>::Centered, A, const A*, const A*,
               std::int64_t);
  void (*weigh)(A*, const A*, const A*, std::int64_t);
  void (*add_parameters)(A*, A*, const A*, const A*, const Moments<A>&, std::int64_t);
  void (*normalize_backward)(A*, const A*, const A*, const Moments<A>&,
                             typename RowKernels<A>::Centered, std::int64_t);
};

// A member per kernel, compiled for one set of vectors.
#define DTRUN_ROW_KERNEL(attribute, name)              \
  template <typename... Arguments>                     \
  attribute static void name(Arguments... arguments) { \
    By::name(arguments...);                            \
  }
#define DTRUN_ROW_KERNELS(Name, bytes, attribute)                                  \
  template <typename A>                                                            \
  struct Name {                                                                    \
    using By = RowsBy<A, bytes>;                                                   \
    DTRUN_ROW_KERNEL(attribute, softmax)                                           \
    DTRUN_ROW_KERNEL(attribute, log_softmax)                                       \
    DTRUN_ROW_KERNEL(attribute, softmax_backward)                                  \
    DTRUN_ROW_KERNEL(attribute, log_softmax_backward)                              \
    DTRUN_ROW_KERNEL(attribute, exponentials)                                      \
    DTRUN_ROW_KERNEL(attribute, scaled_exp)                                        \
    DTRUN_ROW_KERNEL(attribute, moments)                                           \
    DTRUN_ROW_KERNEL(attribute, inverse_root_mean_square)                          \
    DTRUN_ROW_KERNEL(attribute, norm)                                              \
    DTRUN_ROW_KERNEL(attribute, weigh)                                             \
    DTRUN_ROW_KERNEL(attribute, add_parameters)                                    \
    DTRUN_ROW_KERNEL(attribute, normalize_backward)                                \
    static constexpr KernelsForRegisters<A> kAll = {                               \
        &softmax,      &log_softmax, &softmax_backward, &log_softmax_backward,     \
        &exponentials, &scaled_exp,  &moments,          &inverse_root_mean_square, \
        &norm,         &weigh,       &add_parameters,   &normalize_backward};      \
  };
DTRUN_ROW_KERNELS(Anywhere, 16, )
#if defined(__x86_64__)
DTRUN_ROW_KERNELS(Avx2, 32, DTRUN_WITH_AVX2)
DTRUN_ROW_KERNELS(Avx512, 64, DTRUN_WITH_AVX512)
#endif
#undef DTRUN_ROW_KERNELS
#undef DTRUN_ROW_KERNEL

template <typename A>
const KernelsForRegisters<A>& best_kernels() {
#if defined(__x86_64__)
  if (vector_registers() == VectorRegisters::avx512) return Avx512<A>::kAll;
  if (vector_registers() == VectorRegisters::avx2) return Avx2<A>::kAll;
#endif
  return Anywhere<A>::kAll;
}
template <typename A>
const KernelsForRegisters<A>& kernels() {
  static const KernelsForRegisters<A>& best = best_kernels<A>();
  return best;
}

}  // namespace

template <typename A>
void RowKernels<A>::softmax(A* out, const A* in, std::int64_t count) {
  kernels<A>().softmax(out, in, count);
}

template <typename A>
A RowKernels<A>::logsumexp(const A* in, std::int64_t count) {
  const Exponentials powers = exponentials(in, count);
  if (!std::isinf(powers.greatest)) return std::log(powers.sum) + powers.greatest;
  // Infinite, unless there is a nan.
  const bool has_nan = std::any_of(in, in + count, [](A x) { return x != x; });
  return has_nan ? std::numeric_limits<A>::quiet_NaN() : powers.greatest;
}

template <typename A>
typename RowKernels<A>::Exponentials RowKernels<A>::exponentials(const A* in, std::int64_t count) {
  Exponentials result;
  kernels<A>().exponentials(&result, in, count);
  return result;
}

template <typename A>
void RowKernels<A>::log_softmax(A* out, const A* in, std::int64_t count) {
  kernels<A>().log_softmax(out, in, count);
}

template <typename A>
void RowKernels<A>::scaled_exp(A* out, const A* in, A shift, A scale, std::int64_t count) {
  kernels<A>().scaled_exp(out, in, shift, scale, count);
}

template <typename A>
void RowKernels<A>::softmax_backward(A* out, const A* grad, const A* output, std::int64_t count) {
  kernels<A>().softmax_backward(out, grad, output, count);
}

template <typename A>
void RowKernels<A>::log_softmax_backward(A* out, const A* grad, const A* output,
                                         std::int64_t count) {
  kernels<A>().log_softmax_backward(out, grad, output, count);
}

template <typename A>
typename RowKernels<A>::Moments RowKernels<A>::moments(const A* in, A eps, std::int64_t count) {
  Moments result;
  kernels<A>().moments(&result, in, eps, count);
  return result;
}

template <typename A>
A RowKernels<A>::inverse_root_mean_square(const A* in, A eps, std::int64_t count) {
  A result;
  kernels<A>().inverse_root_mean_square(&result, in, A{0}, eps, count);
  return result;
}

template <typename A>
typename RowKernels<A>::Moments RowKernels<A>::norm(A* out, const A* in, Centered centered, A eps,
                                                    const A* weight, const A* bias,
                                                    std::int64_t count) {
  Moments result;
  kernels<A>().norm(out, &result, in, centered, eps, weight, bias, count);
  return result;
}

template <typename A>
void RowKernels<A>::normalize_backward(A* out, const A* grad, const A* in, Moments moments,
                                       const A* weight, A* grad_weight, A* grad_bias,
                                       Centered centered, std::int64_t count) {
  const KernelsForRegisters<A>& best = kernels<A>();
  best.add_parameters(grad_weight, grad_bias, grad, in, moments, count);
  if (weight != nullptr) best.weigh(out, grad, weight, count);
  best.normalize_backward(out, weight != nullptr ? out : grad, in, moments, centered, count);
}

template struct RowKernels<float>;
template struct RowKernels<double>;

}  // namespace dtrun::tensors
