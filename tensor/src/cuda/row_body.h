// RowBody: a warp for each row, a team for each of 2048 elements or more; so a team takes eight
// short rows at once. Each thread reads four elements before it uses the first of them. For .cu
// files only.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <type_traits>

#include "cuda/for_each_team.h"
#include "cuda/kernels.h"
#include "cuda/line_layout.h"
#include "element.h"
#include "kernels/extreme.h"

namespace dtrun::tensors::cuda {

/// All of one dtype. Operand 0 is the result.
template <typename T, int kOperands>
struct RowOperands {
  using A = ComputeType<T>;
  using Starts = typename StridedLayout<kOperands>::Offsets;
  LineLayout<kOperands> layout;
  TeamSplit split;
  T* data[kOperands];

  std::int64_t items() const { return (layout.lines + split.units - 1) / split.units; }
  /// -1 beyond the last
  DTRUN_BOTH std::int64_t row(std::int64_t item, int thread) const {
    const std::int64_t row = item * split.units + split.unit(thread);
    return row < layout.lines ? row : -1;
  }
  DTRUN_BOTH A load(int k, const Starts& starts, std::int64_t i) const {
    return Element<T>::load(data[k][starts.of[k] + i * layout.steps[k]]);
  }
  DTRUN_BOTH void store(int k, const Starts& starts, std::int64_t i, A value) const {
    data[k][starts.of[k] + i * layout.steps[k]] = Element<T>::store(value);
  }
};

template <typename T, std::size_t kOperands>
RowOperands<T, kOperands> row_operands(const std::array<LocalTensor, kOperands>& tensors, int dim) {
  std::array<const Strides*, kOperands> strides;
  for (std::size_t k = 0; k < kOperands; ++k) strides[k] = &tensors[k].strides();
  RowOperands<T, kOperands> rows{make_lines<kOperands>(tensors[0].shape(), dim, strides), {}, {}};
  for (std::size_t k = 0; k < kOperands; ++k) rows.data[k] = tensors[k].template data_as<T>();
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

inline DType row_compute_dtype(DType dtype) {
  return dtype == DType::f64 ? DType::f64 : DType::f32;
}

/// Calls function(TypeTag<T>{}) with a floating-point dtype's T.
template <typename Function>
void dispatch_rows(DType dtype, const Function& function) {
  dispatch(dtype, [&](auto tag) {
    if constexpr (std::is_floating_point_v<ComputeType<typename decltype(tag)::Type>>) {
      function(tag);
    }
  });
}

/// run(rows) with operands of one dtype: where they differ, of that which the last one, the source,
/// is computed in, and rounded once.
template <std::size_t kOperands, typename Run>
void with_rows(std::array<LocalTensor, kOperands> tensors, int dim, const Run& run) {
  if (tensors[0].numel() == 0) return;
  const LocalTensor target = tensors[0];
  const bool differ = std::any_of(tensors.begin(), tensors.end(), [&](const LocalTensor& tensor) {
    return tensor.dtype() != target.dtype();
  });
  if (differ) {
    const DType common = row_compute_dtype(tensors.back().dtype());
    tensors[0] = empty(target.shape(), {common, target.device()});
    for (std::size_t k = 1; k < kOperands; ++k) tensors[k] = tensors[k].to(common);
  }
  dispatch_rows(tensors[0].dtype(), [&](auto tag) {
    run(row_operands<typename decltype(tag)::Type, kOperands>(tensors, dim));
  });
  if (differ) convert(target, tensors[0]);
}

/// Of a row: what its threads have, and up to three numbers that have been found.
template <typename A>
struct RowSpace {
  A lanes[kThreads];
  A found[3][kThreads];
};

/// Elements that a thread reads before it uses the first of them; f64's functions are too long to
/// stand in a kernel so often.
template <typename A>
constexpr int kAheadOf = sizeof(A) == 8 ? 1 : 4;

/// found[slot] of each row = end(the join of element(operand starts, i, found numbers) over its
/// elements).
template <typename Op, typename Rows, typename A, typename ElementOf, typename End>
DTRUN_BOTH void fold_rows(const Rows& rows, const Team<RowSpace<A>>& team, std::int64_t item,
                          int slot, const ElementOf& element, const End& end) {
  team.each_thread([&](int thread, RowSpace<A>& space) {
    const std::int64_t row = rows.row(item, thread);
    A folded = neutral<Op, A>();
    if (row >= 0) {
      const auto starts = rows.layout.others.offsets(row);
      const A first = space.found[0][rows.split.unit(thread)];
      const A second = space.found[1][rows.split.unit(thread)];
      constexpr int kAhead = kAheadOf<A>;
      const std::int64_t step = rows.split.lanes, length = rows.layout.length;
      for (std::int64_t i = rows.split.lane(thread); i < length; i += kAhead * step) {
        A ahead[kAhead];
#pragma unroll
        for (int k = 0; k < kAhead; ++k) {
          const std::int64_t next = i + k * step;
          ahead[k] = next < length ? element(starts, next, first, second) : neutral<Op, A>();
        }
#pragma unroll
        for (int k = 0; k < kAhead; ++k) folded = Op::apply(folded, ahead[k]);
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

/// Stores element(operand starts, i, row's found numbers, row) for each element of the rows.
template <typename Rows, typename A, typename ElementOf>
DTRUN_BOTH void store_rows(const Rows& rows, const Team<RowSpace<A>>& team, std::int64_t item,
                           const ElementOf& element) {
  team.each_thread([&](int thread, RowSpace<A>& space) {
    const std::int64_t row = rows.row(item, thread);
    if (row < 0) return;
    const auto starts = rows.layout.others.offsets(row);
    const int unit = rows.split.unit(thread);
    const A found[3] = {space.found[0][unit], space.found[1][unit], space.found[2][unit]};
    constexpr int kAhead = kAheadOf<A>;
    const std::int64_t step = rows.split.lanes, length = rows.layout.length;
    for (std::int64_t i = rows.split.lane(thread); i < length; i += kAhead * step) {
      A ahead[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        if (i + k * step < length) ahead[k] = element(starts, i + k * step, found, row);
      }
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        if (i + k * step < length) rows.store(0, starts, i + k * step, ahead[k]);
      }
    }
  });
}

/// The first thread of each row.
template <typename Rows, typename A, typename Use>
DTRUN_BOTH void for_each_row_once(const Rows& rows, const Team<RowSpace<A>>& team,
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

inline Stream stream_of_rows(const LocalTensor& tensor) {
  return current_stream(tensor.device().index);
}

}  // namespace dtrun::tensors::cuda
