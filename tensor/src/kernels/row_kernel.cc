#include "kernels/row_kernel.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/row_passes.h"

namespace dtrun::tensors {
namespace {

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
template <typename A>
using Exponentials = typename RowKernels<A>::Exponentials;

/// The kernels with vectors of kBytes.
template <typename A, int kBytes>
struct RowsBy {
  /// The greatest of each row.
  DTRUN_INLINED static void greatest(A* most, const Rows<A>& rows) {
    for (std::int64_t r = 0; r < rows.rows; ++r)
      most[r] = greatest_of_row<A, kBytes>(rows.in + r * rows.in_step, rows.count);
  }
  DTRUN_INLINED static void totals(A* total, const A* most, const Rows<A>& rows) {
    for (std::int64_t r = 0; r < rows.rows; ++r)
      total[r] = total_of_exponentials<Keep::no, A, kBytes>(nullptr, rows.in + r * rows.in_step,
                                                            most[r], rows.count);
  }

  DTRUN_INLINED static void softmax(const Rows<A>& all) {
    for_rows_beside<A>(all, [](const Rows<A>& rows, std::int64_t) DTRUN_INLINED_LAMBDA {
      A most[kMostBeside], total[kMostBeside];
      greatest(most, rows);
      for (std::int64_t r = 0; r < rows.rows; ++r)
        total[r] = total_of_exponentials<Keep::yes, A, kBytes>(
            rows.out + r * rows.out_step, rows.in + r * rows.in_step, most[r], rows.count);
      for (std::int64_t r = 0; r < rows.rows; ++r) {
        A* const out = rows.out + r * rows.out_step;
        const A scale = 1 / total[r];
        map_row<A, kBytes>(
            out, rows.count,
            ByVectors{[=](auto& y, const auto& x) DTRUN_INLINED_LAMBDA { y = x * scale; }}, out);
      }
    });
  }

  DTRUN_INLINED static void log_softmax(const Rows<A>& all) {
    for_rows_beside<A>(all, [](const Rows<A>& rows, std::int64_t) DTRUN_INLINED_LAMBDA {
      A greatest_of[kMostBeside], total[kMostBeside];
      greatest(greatest_of, rows);
      totals(total, greatest_of, rows);
      for (std::int64_t r = 0; r < rows.rows; ++r) {
        // As PyTorch, the greatest element first: a sum of exponentials says nothing of its last
        // bits.
        const A most = greatest_of[r], shift = std::log(total[r]);
        map_row<A, kBytes>(
            rows.out + r * rows.out_step, rows.count,
            ByVectors{[=](auto& y, const auto& x) DTRUN_INLINED_LAMBDA { y = x - most - shift; }},
            rows.in + r * rows.in_step);
      }
    });
  }

  /// The greatest of each row and its sum.
  DTRUN_INLINED static void exponentials(Exponentials<A>* results, const Rows<A>& rows) {
    A most[kMostBeside], total[kMostBeside];
    greatest(most, rows);
    totals(total, most, rows);
    for (std::int64_t r = 0; r < rows.rows; ++r) results[r] = {most[r], total[r]};
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
};

/// What differs by the vectors that the processor has.
template <typename A>
struct KernelsForRegisters {
  using Map = void (*)(const Rows<A>&);
  using Backward = void (*)(A*, const A*, const A*, std::int64_t);
  Map softmax, log_softmax;
  Backward softmax_backward, log_softmax_backward;
  void (*exponentials)(Exponentials<A>*, const Rows<A>&);
  void (*scaled_exp)(A*, const A*, A, A, std::int64_t);
};
#define DTRUN_ROW_KERNELS(Name, bytes, attribute)                                             \
  template <typename A>                                                                       \
  struct Name {                                                                               \
    using By = RowsBy<A, bytes>;                                                              \
    DTRUN_ROW_KERNEL(attribute, softmax)                                                      \
    DTRUN_ROW_KERNEL(attribute, log_softmax)                                                  \
    DTRUN_ROW_KERNEL(attribute, softmax_backward)                                             \
    DTRUN_ROW_KERNEL(attribute, log_softmax_backward)                                         \
    DTRUN_ROW_KERNEL(attribute, exponentials)                                                 \
    DTRUN_ROW_KERNEL(attribute, scaled_exp)                                                   \
    static constexpr KernelsForRegisters<A> kAll = {&softmax,          &log_softmax,          \
                                                    &softmax_backward, &log_softmax_backward, \
                                                    &exponentials,     &scaled_exp};          \
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
void RowKernels<A>::softmax(const Rows<A>& rows) {
  kernels<A>().softmax(rows);
}

template <typename A>
void RowKernels<A>::log_softmax(const Rows<A>& rows) {
  kernels<A>().log_softmax(rows);
}

namespace {

template <typename A>
A logsumexp_of_row(const Exponentials<A>& powers, const A* in, std::int64_t count) {
  if (!std::isinf(powers.greatest)) return std::log(powers.sum) + powers.greatest;
  // Infinite, unless there is a nan.
  const bool has_nan = std::any_of(in, in + count, [](A x) { return x != x; });
  return has_nan ? std::numeric_limits<A>::quiet_NaN() : powers.greatest;
}

}  // namespace

template <typename A>
void RowKernels<A>::logsumexp(const Rows<A>& all) {
  for_rows_beside<A>(all, [&](const Rows<A>& rows, std::int64_t) {
    Exponentials powers[kMostBeside];
    kernels<A>().exponentials(powers, rows);
    for (std::int64_t r = 0; r < rows.rows; ++r)
      rows.out[r * rows.out_step] =
          logsumexp_of_row<A>(powers[r], rows.in + r * rows.in_step, rows.count);
  });
}

template <typename A>
typename RowKernels<A>::Exponentials RowKernels<A>::exponentials(const A* in, std::int64_t count) {
  Exponentials result;
  kernels<A>().exponentials(&result, {nullptr, in, 0, 0, 1, count});
  return result;
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

template struct RowKernels<float>;
template struct RowKernels<double>;

}  // namespace dtrun::tensors
