// Rows: a warp for each, a team for each of 2048 elements or more; so a team takes eight short rows
// at once. What is computed in is compiled (f32, f64), what lies in memory is
// told at run time.
#include "cuda/rows.h"

#include <cmath>

#include "cuda/any_element.h"
#include "cuda/for_each_team.h"
#include "cuda/line_layout.h"
#include "kernels/extreme.h"

namespace dtrun::tensors::cuda {
namespace {

/// Operand 0 is the result.
template <int kOperands>
struct RowOperands {
  LineLayout<kOperands> layout;
  TeamSplit split;
  void* data[kOperands];
  DType dtypes[kOperands];

  std::int64_t items() const { return (layout.lines + split.units - 1) / split.units; }
  /// -1 beyond the last
  DTRUN_BOTH std::int64_t row(std::int64_t item, int thread) const {
    const std::int64_t row = item * split.units + split.unit(thread);
    return row < layout.lines ? row : -1;
  }
  template <typename A>
  DTRUN_BOTH A load(int k, std::int64_t start, std::int64_t i) const {
    return load_floating<A>(data[k], dtypes[k], start + i * layout.steps[k]);
  }
  template <typename A>
  DTRUN_BOTH void store(int k, std::int64_t start, std::int64_t i, A value) const {
    const std::int64_t place = start + i * layout.steps[k];
    switch (dtypes[k]) {
      case DType::f64:
        static_cast<double*>(data[k])[place] = static_cast<double>(value);
        return;
      case DType::f32:
        static_cast<float*>(data[k])[place] = static_cast<float>(value);
        return;
      case DType::f16:
        static_cast<Float16*>(data[k])[place] = to_float16(static_cast<float>(value));
        return;
      default:
        static_cast<BFloat16*>(data[k])[place] = to_bfloat16(static_cast<float>(value));
    }
  }
};

template <int kOperands>
RowOperands<kOperands> row_operands(const std::array<LocalTensor, kOperands>& tensors, int dim) {
  std::array<const Strides*, kOperands> strides;
  for (std::size_t k = 0; k < kOperands; ++k) strides[k] = &tensors[k].strides();
  RowOperands<kOperands> rows{make_lines<kOperands>(tensors[0].shape(), dim, strides), {}, {}, {}};
  for (std::size_t k = 0; k < kOperands; ++k) {
    rows.data[k] = tensors[k].data();
    rows.dtypes[k] = tensors[k].dtype();
  }
  // Rows that lie side by side are read together. How many threads a row has depends on its length
  // alone: the same bits for every layout.
  const auto& others = rows.layout.others;
  constexpr std::size_t kLast = kOperands - 1;
  const bool side_by_side =
      others.rank > 0 && std::abs(others.strides[kLast][0]) < std::abs(rows.layout.steps[kLast]);
  constexpr std::int64_t kLongRow = 2048, kWarp = 32;
  const std::int64_t lanes =
      rows.layout.length < kLongRow ? std::min(rows.layout.length, kWarp) : rows.layout.length;
  rows.split = TeamSplit::of_lanes(lanes, side_by_side ? Neighbours::units : Neighbours::lanes);
  return rows;
}

/// Of a row: what its threads have, and up to three numbers that have been found.
template <typename A>
struct RowSpace {
  A lanes[kThreads];
  A found[3][kThreads];
};

/// found[slot] of each row = end(the join of element(operand starts, row, i) over its elements).
template <typename Op, typename A, int kOperands, typename ElementOf, typename End>
DTRUN_BOTH void fold_rows(const RowOperands<kOperands>& rows, const Team<RowSpace<A>>& team,
                          std::int64_t item, int slot, const ElementOf& element, const End& end) {
  team.each_thread([&](int thread, RowSpace<A>& space) {
    const std::int64_t row = rows.row(item, thread);
    A folded = neutral<Op, A>();
    if (row >= 0) {
      const auto starts = rows.layout.others.offsets(row);
      const A first = space.found[0][rows.split.unit(thread)];
      const A second = space.found[1][rows.split.unit(thread)];
      for (std::int64_t i = rows.split.lane(thread); i < rows.layout.length;
           i += rows.split.lanes) {
        folded = Op::apply(folded, element(starts, i, first, second));
      }
    }
    space.lanes[thread] = folded;
  });
  rows.split.join(
      team, [](RowSpace<A>& space) { return space.lanes; },
      [](A a, A b) { return Op::apply(a, b); });
  team.each_thread([&](int thread, RowSpace<A>& space) {
    if (rows.split.lane(thread) != 0) return;
    space.found[slot][rows.split.unit(thread)] = end(space.lanes[thread]);
  });
}

/// Stores element(operand starts, i, row's found numbers) for each element of the rows.
template <typename A, int kOperands, typename ElementOf>
DTRUN_BOTH void store_rows(const RowOperands<kOperands>& rows, const Team<RowSpace<A>>& team,
                           std::int64_t item, const ElementOf& element) {
  team.each_thread([&](int thread, RowSpace<A>& space) {
    const std::int64_t row = rows.row(item, thread);
    if (row < 0) return;
    const auto starts = rows.layout.others.offsets(row);
    const int unit = rows.split.unit(thread);
    const A found[3] = {space.found[0][unit], space.found[1][unit], space.found[2][unit]};
    for (std::int64_t i = rows.split.lane(thread); i < rows.layout.length; i += rows.split.lanes) {
      rows.store(0, starts.of[0], i, element(starts, i, found, row));
    }
  });
}

/// The first thread of each row.
template <typename A, int kOperands, typename Use>
DTRUN_BOTH void for_each_row_once(const RowOperands<kOperands>& rows, const Team<RowSpace<A>>& team,
                                  std::int64_t item, const Use& use) {
  team.each_thread([&](int thread, RowSpace<A>& space) {
    const std::int64_t row = rows.row(item, thread);
    if (row < 0 || rows.split.lane(thread) != 0) return;
    const int unit = rows.split.unit(thread);
    use(row, space.found[0][unit], space.found[1][unit]);
  });
}

struct AsItIs {
  template <typename A>
  DTRUN_BOTH A operator()(A x) const {
    return x;
  }
};

/// found[0] = the greatest element, found[1] = the sum of what e to the others' distance is
template <typename A, int kOperands>
DTRUN_BOTH void fold_exponentials(const RowOperands<kOperands>& rows, const Team<RowSpace<A>>& team,
                                  std::int64_t item, int operand) {
  using Starts = typename StridedLayout<kOperands>::Offsets;
  fold_rows<Greatest, A>(
      rows, team, item, 0,
      [&](const Starts& starts, std::int64_t i, A, A) {
        return rows.template load<A>(operand, starts.of[operand], i);
      },
      AsItIs{});
  fold_rows<Add, A>(
      rows, team, item, 1,
      [&](const Starts& starts, std::int64_t i, A most, A) {
        return std::exp(rows.template load<A>(operand, starts.of[operand], i) - most);
      },
      AsItIs{});
}

template <typename A>
struct SoftmaxRows {
  using Shared = RowSpace<A>;
  using Starts = StridedLayout<2>::Offsets;
  RowOperands<2> rows;
  SoftmaxForm form;

  DTRUN_BOTH void operator()(const Team<Shared>& team, std::int64_t item) const {
    fold_exponentials(rows, team, item, 1);
    store_rows(rows, team, item,
               [&](const Starts& starts, std::int64_t i, const A* found, std::int64_t) {
                 const A way = rows.load<A>(1, starts.of[1], i) - found[0];
                 return form == SoftmaxForm::plain ? std::exp(way) * (1 / found[1])
                                                   : way - std::log(found[1]);
               });
  }
};

/// Operands: result, grad, output.
template <typename A>
struct SoftmaxRowsBackward {
  using Shared = RowSpace<A>;
  using Starts = StridedLayout<3>::Offsets;
  RowOperands<3> rows;
  SoftmaxForm form;

  DTRUN_BOTH void operator()(const Team<Shared>& team, std::int64_t item) const {
    fold_rows<Add, A>(
        rows, team, item, 0,
        [&](const Starts& starts, std::int64_t i, A, A) {
          const A grad = rows.load<A>(1, starts.of[1], i);
          return form == SoftmaxForm::plain ? grad * rows.load<A>(2, starts.of[2], i) : grad;
        },
        AsItIs{});
    store_rows(rows, team, item,
               [&](const Starts& starts, std::int64_t i, const A* found, std::int64_t) {
                 const A grad = rows.load<A>(1, starts.of[1], i);
                 const A output = rows.load<A>(2, starts.of[2], i);
                 return form == SoftmaxForm::plain ? (grad - found[0]) * output
                                                   : grad - std::exp(output) * found[0];
               });
  }
};

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
template <typename A, int kOperands>
DTRUN_BOTH void find_moments(const RowOperands<kOperands>& rows, const Team<RowSpace<A>>& team,
                             std::int64_t item, NormForm form, A eps) {
  using Starts = typename StridedLayout<kOperands>::Offsets;
  constexpr int kSource = kOperands - 1;
  const A count = static_cast<A>(rows.layout.length);
  fold_rows<Add, A>(
      rows, team, item, 0,
      [&](const Starts& starts, std::int64_t i, A, A) {
        return form == NormForm::layer ? rows.template load<A>(kSource, starts.of[kSource], i)
                                       : A{0};
      },
      [count](A sum) { return sum / count; });
  fold_rows<Add, A>(
      rows, team, item, 1,
      [&](const Starts& starts, std::int64_t i, A mean, A) {
        const A way = rows.template load<A>(kSource, starts.of[kSource], i) - mean;
        return way * way;
      },
      [count, eps](A squares) { return 1 / std::sqrt(squares / count + eps); });
}

/// Operands: result, source; or the source alone, where only moments are wanted.
template <typename A, int kOperands>
struct NormRowsForward {
  using Shared = RowSpace<A>;
  using Starts = typename StridedLayout<kOperands>::Offsets;
  RowOperands<kOperands> rows;
  NormForm form;
  NormPointers<A> pointers;
  A eps;

  DTRUN_BOTH void operator()(const Team<Shared>& team, std::int64_t item) const {
    find_moments<A>(rows, team, item, form, eps);
    for_each_row_once(rows, team, item, [&](std::int64_t row, A mean, A inverse_deviation) {
      if (pointers.mean != nullptr) pointers.mean[row] = mean;
      pointers.inverse_deviation[row] = inverse_deviation;
    });
    if constexpr (kOperands == 2) {
      store_rows(rows, team, item,
                 [&](const Starts& starts, std::int64_t i, const A* found, std::int64_t) {
                   A value = (rows.template load<A>(1, starts.of[1], i) - found[0]) * found[1];
                   if (pointers.weight != nullptr) value *= pointers.weight[i];
                   return pointers.bias != nullptr ? value + pointers.bias[i] : value;
                 });
    }
  }
};

/// Operands: result, grad, source.
template <typename A>
struct NormRowsBackward {
  using Shared = RowSpace<A>;
  using Starts = StridedLayout<3>::Offsets;
  RowOperands<3> rows;
  NormForm form;
  NormPointers<A> pointers;

  /// The gradient of what was normalized, before it was weighted.
  DTRUN_BOTH A inner(const Starts& starts, std::int64_t i) const {
    const A grad = rows.load<A>(1, starts.of[1], i);
    return pointers.weight != nullptr ? grad * pointers.weight[i] : grad;
  }
  DTRUN_BOTH A normalized(const Starts& starts, std::int64_t i, A mean, A scale) const {
    return (rows.load<A>(2, starts.of[2], i) - mean) * scale;
  }

  DTRUN_BOTH void operator()(const Team<Shared>& team, std::int64_t item) const {
    team.each_thread([&](int thread, Shared& space) {
      const std::int64_t row = rows.row(item, thread);
      if (row < 0 || rows.split.lane(thread) != 0) return;
      space.found[0][rows.split.unit(thread)] = pointers.center(row);
      space.found[1][rows.split.unit(thread)] = pointers.inverse_deviation[row];
    });
    const A share = 1 / static_cast<A>(rows.layout.length);
    fold_rows<Add, A>(
        rows, team, item, 2,
        [&](const Starts& starts, std::int64_t i, A mean, A scale) {
          return inner(starts, i) * normalized(starts, i, mean, scale);
        },
        [share](A sum) { return sum * share; });
    keep_scaled_along(team, item);
    const bool is_centered = form == NormForm::layer;
    fold_rows<Add, A>(
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

/// The only operand are the scores.
template <typename A>
struct CrossEntropyLosses {
  using Shared = RowSpace<A>;
  RowOperands<1> rows;
  A* losses;
  A* logsumexps;
  const std::int64_t* chosen;
  std::int64_t ignored;

  DTRUN_BOTH void operator()(const Team<Shared>& team, std::int64_t item) const {
    fold_exponentials(rows, team, item, 0);
    for_each_row_once(rows, team, item, [&](std::int64_t row, A most, A sum) {
      const A logsumexp = std::isinf(most) ? most : std::log(sum) + most;
      logsumexps[row] = logsumexp;
      const std::int64_t right = chosen[row];
      losses[row] =
          right == ignored
              ? A{0}
              : logsumexp - rows.template load<A>(0, rows.layout.others.offsets(row).of[0], right);
    });
  }
};

/// Operands: result, scores. No row needs another number than it is given.
template <typename A>
struct CrossEntropyGradients {
  using Shared = RowSpace<A>;
  using Starts = StridedLayout<2>::Offsets;
  RowOperands<2> rows;
  const A* scales;
  const A* logsumexps;
  const std::int64_t* chosen;
  std::int64_t ignored, first_class;

  DTRUN_BOTH void operator()(const Team<Shared>& team, std::int64_t item) const {
    store_rows(rows, team, item,
               [&](const Starts& starts, std::int64_t i, const A*, std::int64_t row) {
                 if (chosen[row] == ignored) return A{0};
                 const A score = rows.load<A>(1, starts.of[1], i);
                 const A share = std::exp(score - logsumexps[row]) * scales[row];
                 return chosen[row] - first_class == i ? share - scales[row] : share;
               });
  }
};

Stream stream_of_rows(const LocalTensor& tensor) {
  return current_stream(tensor.device().index);
}

/// Calls function(A{}) with what is computed in.
template <typename Function>
void with_computed(DType dtype, const Function& function) {
  if (dtype == DType::f64) return function(double{});
  function(float{});
}

}  // namespace

void softmax_rows(SoftmaxForm form, const LocalTensor& target, const LocalTensor& source, int dim) {
  if (target.numel() == 0) return;
  const auto rows = row_operands<2>({target, source}, dim);
  with_computed(source.dtype(), [&](auto zero) {
    for_each_team(rows.items(), SoftmaxRows<decltype(zero)>{rows, form}, stream_of_rows(source));
  });
}

void softmax_rows_backward(SoftmaxForm form, const LocalTensor& target, const LocalTensor& grad,
                           const LocalTensor& output, int dim) {
  if (target.numel() == 0) return;
  const auto rows = row_operands<3>({target, grad, output}, dim);
  with_computed(output.dtype(), [&](auto zero) {
    for_each_team(rows.items(), SoftmaxRowsBackward<decltype(zero)>{rows, form},
                  stream_of_rows(output));
  });
}

void norm_rows_forward(NormForm form, const LocalTensor& target, const LocalTensor& source,
                       const NormTensors& tensors, double eps) {
  if (target.numel() == 0) return;
  const auto rows = row_operands<2>({target, source}, 1);
  with_computed(source.dtype(), [&](auto zero) {
    using A = decltype(zero);
    for_each_team(rows.items(),
                  NormRowsForward<A, 2>{rows, form, NormPointers<A>(tensors), static_cast<A>(eps)},
                  stream_of_rows(source));
  });
}

void norm_rows_moments(NormForm form, const LocalTensor& source, const NormTensors& tensors,
                       double eps) {
  if (source.numel() == 0) return;
  const auto rows = row_operands<1>({source}, 1);
  with_computed(source.dtype(), [&](auto zero) {
    using A = decltype(zero);
    for_each_team(rows.items(),
                  NormRowsForward<A, 1>{rows, form, NormPointers<A>(tensors), static_cast<A>(eps)},
                  stream_of_rows(source));
  });
}

void norm_rows_backward(NormForm form, const LocalTensor& target, const LocalTensor& grad,
                        const LocalTensor& source, const NormTensors& tensors) {
  if (target.numel() == 0) return;
  const auto rows = row_operands<3>({target, grad, source}, 1);
  with_computed(source.dtype(), [&](auto zero) {
    using A = decltype(zero);
    for_each_team(rows.items(), NormRowsBackward<A>{rows, form, NormPointers<A>(tensors)},
                  stream_of_rows(source));
  });
}

std::int64_t norm_chunks(std::int64_t rows) {
  return (rows + rows_a_norm_chunk(rows) - 1) / rows_a_norm_chunk(rows);
}

void norm_rows_sums(const NormSums& sums, const LocalTensor& grad, const LocalTensor& source,
                    const NormTensors& tensors) {
  const std::int64_t rows = source.size(0), length = source.size(1);
  with_computed(source.dtype(), [&](auto zero) {
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
  });
}

void cross_entropy_losses(const CrossEntropy& results, const LocalTensor& logits,
                          const LocalTensor& chosen, std::int64_t ignored) {
  if (logits.numel() == 0) return;
  const auto rows = row_operands<1>({logits}, 1);
  with_computed(logits.dtype(), [&](auto zero) {
    using A = decltype(zero);
    for_each_team(
        rows.items(),
        CrossEntropyLosses<A>{rows, results.loss.data_as<A>(), results.logsumexp.data_as<A>(),
                              chosen.data_as<const std::int64_t>(), ignored},
        stream_of_rows(logits));
  });
}

void cross_entropy_gradients(const LocalTensor& target, const LocalTensor& scales,
                             const LocalTensor& logits, const LocalTensor& chosen,
                             const LocalTensor& logsumexp, std::int64_t ignored,
                             std::int64_t first_class) {
  if (logits.numel() == 0) return;
  const auto rows = row_operands<2>({target, logits}, 1);
  with_computed(logits.dtype(), [&](auto zero) {
    using A = decltype(zero);
    for_each_team(
        rows.items(),
        CrossEntropyGradients<A>{rows, scales.data_as<const A>(), logsumexp.data_as<const A>(),
                                 chosen.data_as<const std::int64_t>(), ignored, first_class},
        stream_of_rows(logits));
  });
}

}  // namespace dtrun::tensors::cuda
