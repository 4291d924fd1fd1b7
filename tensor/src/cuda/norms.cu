// Layer and root mean square norms of rows, and their gradients.
#include <algorithm>
#include <cmath>

#include "cuda/any_element.h"
#include "cuda/row_body.h"
#include "cuda/rows.h"

namespace dtrun::tensors::cuda {
namespace {

template <typename A>
struct NormPointers {
  A* mean;
  A* inverse_deviation;
  const A* weight;
  const A* bias;

  explicit NormPointers(const NormTensors& tensors)
      : mean(of(tensors.mean)),
        inverse_deviation(of(tensors.inverse_deviation)),
        weight(of(tensors.weight)),
        bias(of(tensors.bias)) {}
  static A* of(const LocalTensor& tensor) {
    return tensor.defined() ? tensor.data_as<A>() : nullptr;
  }
  DTRUN_BOTH A center(std::int64_t row) const { return mean == nullptr ? A{0} : mean[row]; }
};

/// The source is operand kSource; found[0] = mean, found[1] = inverse deviation.
template <int kSource, typename Rows, typename A>
DTRUN_BOTH void find_moments(const Rows& rows, const Team<RowSpace<A>>& team, std::int64_t item,
                             NormForm form, A eps) {
  using Starts = typename Rows::Starts;
  const A count = static_cast<A>(rows.layout.length);
  fold_rows<Add>(
      rows, team, item, 0,
      [&](const Starts& starts, std::int64_t i, A, A) {
        return form == NormForm::layer ? rows.load(kSource, starts, i) : A{0};
      },
      [count](A sum) { return sum / count; });
  fold_rows<Add>(
      rows, team, item, 1,
      [&](const Starts& starts, std::int64_t i, A mean, A) {
        const A way = rows.load(kSource, starts, i) - mean;
        return way * way;
      },
      [count, eps](A squares) { return 1 / std::sqrt(squares / count + eps); });
}

/// Operands: result, source; or the source alone, where only moments are wanted.
template <typename T, int kOperands>
struct NormRowsForward {
  using A = ComputeType<T>;
  using Shared = RowSpace<A>;
  using Starts = typename StridedLayout<kOperands>::Offsets;
  RowOperands<T, kOperands> rows;
  NormForm form;
  NormPointers<A> pointers;
  A eps;

  DTRUN_BOTH void operator()(const Team<Shared>& team, std::int64_t item) const {
    find_moments<kOperands - 1>(rows, team, item, form, eps);
    for_each_row_once(rows, team, item, [&](std::int64_t row, A mean, A inverse_deviation) {
      if (pointers.mean != nullptr) pointers.mean[row] = mean;
      pointers.inverse_deviation[row] = inverse_deviation;
    });
    if constexpr (kOperands == 2) {
      store_rows(rows, team, item,
                 [&](const Starts& starts, std::int64_t i, const A* found, std::int64_t) {
                   A value = (rows.load(1, starts, i) - found[0]) * found[1];
                   if (pointers.weight != nullptr) value *= pointers.weight[i];
                   return pointers.bias != nullptr ? value + pointers.bias[i] : value;
                 });
    }
  }
};

/// Operands: result, grad, source.
template <typename T>
struct NormRowsBackward {
  using A = ComputeType<T>;
  using Shared = RowSpace<A>;
  using Starts = StridedLayout<3>::Offsets;
  RowOperands<T, 3> rows;
  NormForm form;
  NormPointers<A> pointers;

  /// The gradient of what was normalized, before it was weighted.
  DTRUN_BOTH A inner(const Starts& starts, std::int64_t i) const {
    const A grad = rows.load(1, starts, i);
    return pointers.weight != nullptr ? grad * pointers.weight[i] : grad;
  }
  DTRUN_BOTH A normalized(const Starts& starts, std::int64_t i, A mean, A scale) const {
    return (rows.load(2, starts, i) - mean) * scale;
  }

  DTRUN_BOTH void operator()(const Team<Shared>& team, std::int64_t item) const {
    team.each_thread([&](int thread, Shared& space) {
      const std::int64_t row = rows.row(item, thread);
      if (row < 0 || rows.split.lane(thread) != 0) return;
      space.found[0][rows.split.unit(thread)] = pointers.center(row);
      space.found[1][rows.split.unit(thread)] = pointers.inverse_deviation[row];
    });
    const A share = 1 / static_cast<A>(rows.layout.length);
    fold_rows<Add>(
        rows, team, item, 2,
        [&](const Starts& starts, std::int64_t i, A mean, A scale) {
          return inner(starts, i) * normalized(starts, i, mean, scale);
        },
        [share](A sum) { return sum * share; });
    keep_scaled_along(team, item);
    const bool is_centered = form == NormForm::layer;
    fold_rows<Add>(
        rows, team, item, 2,
        [&](const Starts& starts, std::int64_t i, A, A) {
          return is_centered ? inner(starts, i) : A{0};
        },
        [share](A sum) { return sum * share; });
    store_rows(rows, team, item,
               [&](const Starts& starts, std::int64_t i, const A* found, std::int64_t row) {
                 const A scale = pointers.inverse_deviation[row];
                 const A way = normalized(starts, i, pointers.center(row), scale);
                 return scale * (inner(starts, i) - found[2] - way * found[0]);
               });
  }

  /// found[0] is the mean no longer, but how far the gradient goes along the row.
  DTRUN_BOTH void keep_scaled_along(const Team<Shared>& team, std::int64_t item) const {
    team.each_thread([&](int thread, Shared& space) {
      if (rows.row(item, thread) < 0 || rows.split.lane(thread) != 0) return;
      const int unit = rows.split.unit(thread);
      space.found[0][unit] = space.found[2][unit];
    });
  }
};

/// Rows of a chunk.
constexpr std::int64_t kNormChunks = 256;
std::int64_t rows_a_norm_chunk(std::int64_t rows) {
  constexpr std::int64_t kFewest = 16;
  return std::max(kFewest, (rows + kNormChunks - 1) / kNormChunks);
}

/// Index: a chunk's column.
template <typename A>
struct AddNormColumns {
  A* weight;
  A* bias;
  const void* grad;
  const void* source;
  DType grad_dtype, source_dtype;
  NormPointers<A> pointers;
  std::int64_t grad_steps[2], source_steps[2];
  std::int64_t rows, length, rows_a_chunk;

  DTRUN_BOTH void operator()(std::int64_t index) const {
    const Division place = divide(index, length);
    const std::int64_t i = place.remainder;
    const std::int64_t begin = place.quotient * rows_a_chunk;
    const std::int64_t end = begin + rows_a_chunk < rows ? begin + rows_a_chunk : rows;
    A along = 0;
    A sum = 0;
    for (std::int64_t row = begin; row < end; ++row) {
      const A g = load_floating<A>(grad, grad_dtype, row * grad_steps[0] + i * grad_steps[1]);
      const A x =
          load_floating<A>(source, source_dtype, row * source_steps[0] + i * source_steps[1]);
      along += g * ((x - pointers.center(row)) * pointers.inverse_deviation[row]);
      sum += g;
    }
    if (weight != nullptr) weight[index] = along;
    if (bias != nullptr) bias[index] = sum;
  }
};

}  // namespace

void norm_rows_forward(NormForm form, const LocalTensor& target, const LocalTensor& source,
                       const NormTensors& tensors, double eps) {
  with_rows<2>({target, source}, 1, [&]<typename T>(const RowOperands<T, 2>& rows) {
    using A = ComputeType<T>;
    for_each_team(rows.items(),
                  NormRowsForward<T, 2>{rows, form, NormPointers<A>(tensors), static_cast<A>(eps)},
                  stream_of_rows(source));
  });
}

void norm_rows_moments(NormForm form, const LocalTensor& source, const NormTensors& tensors,
                       double eps) {
  with_rows<1>({source}, 1, [&]<typename T>(const RowOperands<T, 1>& rows) {
    using A = ComputeType<T>;
    for_each_team(rows.items(),
                  NormRowsForward<T, 1>{rows, form, NormPointers<A>(tensors), static_cast<A>(eps)},
                  stream_of_rows(source));
  });
}

void norm_rows_backward(NormForm form, const LocalTensor& target, const LocalTensor& grad,
                        const LocalTensor& source, const NormTensors& tensors) {
  with_rows<3>({target, grad, source}, 1, [&]<typename T>(const RowOperands<T, 3>& rows) {
    for_each_team(rows.items(),
                  NormRowsBackward<T>{rows, form, NormPointers<ComputeType<T>>(tensors)},
                  stream_of_rows(source));
  });
}

std::int64_t norm_chunks(std::int64_t rows) {
  return (rows + rows_a_norm_chunk(rows) - 1) / rows_a_norm_chunk(rows);
}

void norm_rows_sums(const NormSums& sums, const LocalTensor& grad, const LocalTensor& source,
                    const NormTensors& tensors) {
  const std::int64_t rows = source.size(0), length = source.size(1);
  const auto run = [&](auto zero) {
    using A = decltype(zero);
    for_each(norm_chunks(rows) * length,
             AddNormColumns<A>{NormPointers<A>::of(sums.weight),
                               NormPointers<A>::of(sums.bias),
                               grad.data(),
                               source.data(),
                               grad.dtype(),
                               source.dtype(),
                               NormPointers<A>(tensors),
                               {grad.strides()[0], grad.strides()[1]},
                               {source.strides()[0], source.strides()[1]},
                               rows,
                               length,
                               rows_a_norm_chunk(rows)},
             stream_of_rows(source));
  };
  source.dtype() == DType::f64 ? run(double{}) : run(float{});
}

}  // namespace dtrun::tensors::cuda
