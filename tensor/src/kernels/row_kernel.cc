#include "kernels/row_kernel.h"

#include <algorithm>

#include "kernels/fold_lanes.h"
#include "kernels/map_kernel.h"

namespace dtrun::tensors {
namespace {

template <typename A, typename Map, typename... In>
DTRUN_MULTIVERSION void map_groups(A* out, std::int64_t count, Map map, const In*... in) {
  count -= count % kLanes;
  DTRUN_INDEPENDENT_ROUNDS
  for (std::int64_t i = 0; i < count; ++i) out[i] = map(in[i]...);
}

/// Fewer than kLanes elements; those beyond are as good as any.
template <typename A>
struct LastLanes {
  A values[kLanes];
  LastLanes(const A* source, std::int64_t count) {
    for (std::int64_t i = 0; i < kLanes; ++i) values[i] = source[i < count ? i : 0];
  }
};

/// All elements in groups of lanes: the last ones, too, so that a function has the same bits in
/// every place.
template <typename A, typename Map, typename... In>
void map_row(A* out, std::int64_t count, Map map, const In*... in) {
  map_groups(out, count, map, in...);
  const std::int64_t body = count - count % kLanes;
  if (body == count) return;
  A result[kLanes];
  map_groups(result, kLanes, map, LastLanes<In>(in + body, count - body).values...);
  std::copy_n(result, count - body, out + body);
}

/// As many as hide the time that one addition takes.
constexpr std::int64_t kRowLanes = 64;

/// The sum of a function of two rows.
template <typename A, typename Map>
DTRUN_MULTIVERSION void add_pairs(A* lanes, const A* a, const A* b, std::int64_t groups, Map map) {
  A local[kRowLanes] = {};
  for (std::int64_t group = 0; group < groups; ++group) {
    for (std::int64_t lane = 0; lane < kRowLanes; ++lane) local[lane] += map(a[lane], b[lane]);
    a += kRowLanes;
    b += kRowLanes;
  }
  for (std::int64_t lane = 0; lane < kRowLanes; ++lane) lanes[lane] = local[lane];
}
template <typename A, typename Map>
A sum_of_pairs(const A* a, const A* b, std::int64_t count, Map map) {
  A lanes[kRowLanes];
  const std::int64_t groups = count / kRowLanes;
  add_pairs(lanes, a, b, groups, map);
  for (std::int64_t i = groups * kRowLanes; i < count; ++i) lanes[i % kRowLanes] += map(a[i], b[i]);
  return combine_lanes<Add, kRowLanes>(lanes);
}

template <typename A>
A greatest_of(const A* in, std::int64_t count) {
  return fold_elements<Greatest, kRowLanes>(in, count, Itself{});
}
template <typename A>
A total(const A* in, std::int64_t count) {
  return fold_elements<Add, kRowLanes>(in, count, Itself{});
}
template <typename A>
A total_of_squares(const A* in, A center, std::int64_t count) {
  return fold_elements<Add, kRowLanes>(in, count, SquaredDistance<A>{center});
}

enum class Keep { no, yes };

/// Adds exp(in - shift) to the lanes, and keeps it in out where it is wanted.
template <Keep kKeep, typename A>
DTRUN_MULTIVERSION void add_exponentials(A* lanes, A* out, const A* in, A shift,
                                         std::int64_t groups) {
  A local[kRowLanes] = {};
  for (std::int64_t group = 0; group < groups; ++group) {
    DTRUN_INDEPENDENT_ROUNDS
    for (std::int64_t lane = 0; lane < kRowLanes; ++lane) {
      const std::int64_t i = group * kRowLanes + lane;
      const A value = vector_math::exp_of_negative(in[i] - shift);
      if constexpr (kKeep == Keep::yes) out[i] = value;
      local[lane] += value;
    }
  }
  for (std::int64_t lane = 0; lane < kRowLanes; ++lane) lanes[lane] = local[lane];
}

/// @param out nullptr where they are not kept
template <Keep kKeep, typename A>
A total_of_exponentials(A* out, const A* in, A shift, std::int64_t count) {
  A lanes[kRowLanes];
  const std::int64_t groups = count / kRowLanes;
  const std::int64_t body = groups * kRowLanes;
  add_exponentials<kKeep>(lanes, out, in, shift, groups);
  A last[kRowLanes];
  const auto power = [shift](A x) { return vector_math::exp_of_negative(x - shift); };
  map_row(last, count - body, power, in + body);
  for (std::int64_t i = 0; i < count - body; ++i) {
    if constexpr (kKeep == Keep::yes) out[body + i] = last[i];
    lanes[i] += last[i];
  }
  return combine_lanes<Add, kRowLanes>(lanes);
}

}  // namespace

template <typename A>
void RowKernels<A>::softmax(A* out, const A* in, std::int64_t count) {
  const A sum = total_of_exponentials<Keep::yes>(out, in, greatest_of(in, count), count);
  const A scale = 1 / sum;
  map_row(
      out, count, [scale](A x) { return x * scale; }, out);
}

template <typename A>
A RowKernels<A>::logsumexp(const A* in, std::int64_t count) {
  const A most = greatest_of(in, count);
  // Infinite either way.
  if (std::isinf(most)) return most;
  return std::log(total_of_exponentials<Keep::no>(static_cast<A*>(nullptr), in, most, count)) +
         most;
}

template <typename A>
void RowKernels<A>::log_softmax(A* out, const A* in, std::int64_t count) {
  // As PyTorch, the greatest element first: a sum of exponentials says nothing of its last bits.
  const A most = greatest_of(in, count);
  const A shift =
      std::log(total_of_exponentials<Keep::no>(static_cast<A*>(nullptr), in, most, count));
  map_row(
      out, count, [most, shift](A x) { return x - most - shift; }, in);
}

template <typename A>
void RowKernels<A>::scaled_exp(A* out, const A* in, A shift, A scale, std::int64_t count) {
  map_row(
      out, count, [shift, scale](A x) { return vector_math::exp_of_negative(x - shift) * scale; },
      in);
}

template <typename A>
void RowKernels<A>::softmax_backward(A* out, const A* grad, const A* output, std::int64_t count) {
  const A sum = sum_of_pairs(grad, output, count, [](A g, A y) { return g * y; });
  map_row(
      out, count, [sum](A g, A y) { return (g - sum) * y; }, grad, output);
}

template <typename A>
void RowKernels<A>::log_softmax_backward(A* out, const A* grad, const A* output,
                                         std::int64_t count) {
  const A sum = total(grad, count);
  map_row(
      out, count, [sum](A g, A y) { return g - vector_math::exp_of_negative(y) * sum; }, grad,
      output);
}

template <typename A>
typename RowKernels<A>::Moments RowKernels<A>::moments(const A* in, A eps, std::int64_t count) {
  const A mean = total(in, count) / static_cast<A>(count);
  const A squares = total_of_squares(in, mean, count);
  return {mean, 1 / std::sqrt(squares / static_cast<A>(count) + eps)};
}

template <typename A>
A RowKernels<A>::inverse_root_mean_square(const A* in, A eps, std::int64_t count) {
  const A squares = total_of_squares(in, A{0}, count);
  return 1 / std::sqrt(squares / static_cast<A>(count) + eps);
}

template <typename A>
void RowKernels<A>::normalize(A* out, const A* in, Moments moments, const A* weight, const A* bias,
                              std::int64_t count) {
  const A mean = moments.mean;
  const A scale = moments.inverse_deviation;
  if (weight != nullptr && bias != nullptr) {
    map_row(
        out, count, [=](A x, A w, A b) { return (x - mean) * scale * w + b; }, in, weight, bias);
  } else if (weight != nullptr) {
    map_row(
        out, count, [=](A x, A w) { return (x - mean) * scale * w; }, in, weight);
  } else if (bias != nullptr) {
    map_row(
        out, count, [=](A x, A b) { return (x - mean) * scale + b; }, in, bias);
  } else {
    map_row(
        out, count, [=](A x) { return (x - mean) * scale; }, in);
  }
}

template <typename A>
void RowKernels<A>::normalize_backward(A* out, const A* grad, const A* in, Moments moments,
                                       const A* weight, A* grad_weight, A* grad_bias,
                                       Centered centered, std::int64_t count) {
  const A mean = moments.mean;
  const A scale = moments.inverse_deviation;
  if (grad_weight != nullptr) {
    map_row(
        grad_weight, count, [=](A sum, A g, A x) { return sum + g * ((x - mean) * scale); },
        grad_weight, grad, in);
  }
  if (grad_bias != nullptr) {
    map_row(
        grad_bias, count, [](A sum, A g) { return sum + g; }, grad_bias, grad);
  }
  // The gradient of what was normalized, before it was weighted.
  const A* inner = grad;
  if (weight != nullptr) {
    map_row(
        out, count, [](A g, A w) { return g * w; }, grad, weight);
    inner = out;
  }
  const A share = 1 / static_cast<A>(count);
  const A along =
      share * sum_of_pairs(inner, in, count, [=](A g, A x) { return g * ((x - mean) * scale); });
  const A average = centered == Centered::yes ? share * total(inner, count) : A{0};
  map_row(
      out, count, [=](A g, A x) { return scale * (g - average - (x - mean) * scale * along); },
      inner, in);
}

template struct RowKernels<float>;
template struct RowKernels<double>;

}  // namespace dtrun::tensors
