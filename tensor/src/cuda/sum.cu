// Sums in the order of fold_kernel.h, in passes: the lanes of every block; the lanes added in pairs;
// the one or two blocks of every lowest node; then the full tree above, several levels at a time.
#include <bit>

#include "arithmetic.h"
#include "cuda/for_each.h"
#include "cuda/kernels.h"
#include "cuda/sum_order.h"
#include "dtrun/base/check.h"
#include "element.h"
#include "kernels/sum_kernel.h"

namespace dtrun::tensors::cuda {
namespace {

/// Integers and bool add up in i64, half types in float.
template <typename T>
using SumType =
    std::conditional_t<std::is_floating_point_v<ComputeType<T>>, ComputeType<T>, std::int64_t>;

/// Index: row, block, lane. Threads of a warp read neighbouring elements.
template <typename T>
struct AddLanes {
  using A = SumType<T>;
  const T* rows;
  A* lanes;
  std::int64_t row_size;
  std::int64_t blocks;  ///< per row

  DTRUN_BOTH void operator()(std::int64_t i) const {
    const std::int64_t lane = i % kSumLanes;
    const std::int64_t block = i / kSumLanes % blocks;
    const std::int64_t row = i / kSumLanes / blocks;
    const std::int64_t start = block * kSumBlock;
    const std::int64_t end = start + kSumBlock < row_size ? start + kSumBlock : row_size;
    const T* from = rows + row * row_size;
    A sum{};
    for (std::int64_t k = start + lane; k < end; k += kSumLanes) {
      sum = Add::apply(sum, static_cast<A>(Element<T>::load(from[k])));
    }
    lanes[i] = sum;
  }
};

/// The lanes of one block, added in pairs.
template <typename A>
DTRUN_BOTH A add_lanes(A (&lane)[kSumLanes]) {
#pragma unroll
  for (int half = kSumLanes / 2; half > 0; half /= 2) {
    for (int k = 0; k < half; ++k) lane[k] = Add::apply(lane[k], lane[k + half]);
  }
  return lane[0];
}

/// Index: row. For rows so short that their lanes would be more than they are.
template <typename T, typename Result>
struct AddShortRows {
  using A = SumType<T>;
  const T* rows;
  Result* target;
  std::int64_t row_size;

  DTRUN_BOTH void operator()(std::int64_t row) const {
    const T* from = rows + row * row_size;
    A lane[kSumLanes] = {};
    for (std::int64_t k = 0; k < row_size; k += kSumLanes) {
#pragma unroll
      for (int l = 0; l < kSumLanes; ++l) {
        if (k + l < row_size) {
          lane[l] = Add::apply(lane[l], static_cast<A>(Element<T>::load(from[k + l])));
        }
      }
    }
    target[row] = Element<Result>::store(add_lanes(lane));
  }
};

/// Index: row, node of the lowest full level.
template <typename A>
struct AddBlocks {
  const A* lanes;
  A* nodes;
  std::int64_t blocks;
  int depth;

  DTRUN_BOTH A block_sum(const A* from) const {
    A lane[kSumLanes];
    for (int k = 0; k < kSumLanes; ++k) lane[k] = from[k];
    return add_lanes(lane);
  }

  DTRUN_BOTH void operator()(std::int64_t i) const {
    const std::int64_t row = i >> depth;
    const std::int64_t node = i & ((std::int64_t{1} << depth) - 1);
    const BlockRange range = node_blocks(blocks, depth, node);
    const A* from = lanes + (row * blocks + range.first) * kSumLanes;
    A sum = block_sum(from);
    if (range.count == 2) sum = Add::apply(sum, block_sum(from + kSumLanes));
    nodes[i] = sum;
  }
};

constexpr int kLevelsPerPass = 5;

/// Adds 2^levels neighbours in pairs.
template <typename A>
struct AddNeighbours {
  const A* nodes;
  A* sums;
  int levels;

  DTRUN_BOTH void operator()(std::int64_t i) const {
    A value[1 << kLevelsPerPass];
    const int size = 1 << levels;
    const A* from = nodes + i * size;
#pragma unroll
    for (int k = 0; k < (1 << kLevelsPerPass); ++k) {
      if (k < size) value[k] = from[k];
    }
#pragma unroll
    for (int distance = 1; distance < (1 << kLevelsPerPass); distance *= 2) {
#pragma unroll
      for (int k = 0; k < (1 << kLevelsPerPass); k += 2 * distance) {
        if (k + distance < size) value[k] = Add::apply(value[k], value[k + distance]);
      }
    }
    sums[i] = value[0];
  }
};

template <typename To, typename A>
struct StoreSums {
  To* target;
  const A* sums;

  DTRUN_BOTH void operator()(std::int64_t i) const { target[i] = Element<To>::store(sums[i]); }
};

template <typename T>
using SumResult = std::conditional_t<std::is_floating_point_v<ComputeType<T>>, T, std::int64_t>;

template <typename T>
void run_short_sum(const LocalTensor& target, const LocalTensor& rows, std::int64_t row_size) {
  using Result = SumResult<T>;
  for_each(target.numel(),
           AddShortRows<T, Result>{rows.data_as<const T>(), target.data_as<Result>(), row_size},
           current_stream(target.device().index));
}

template <typename T>
void run_sum(const LocalTensor& target, const LocalTensor& rows, std::int64_t row_size) {
  using A = SumType<T>;
  using Result = SumResult<T>;
  constexpr DType kSums = std::is_same_v<A, double>  ? DType::f64
                          : std::is_same_v<A, float> ? DType::f32
                                                     : DType::i64;
  const Stream stream = current_stream(target.device().index);
  const std::int64_t count = target.numel();
  const std::int64_t blocks = (row_size + kSumBlock - 1) / kSumBlock;
  const auto scratch = [&](std::int64_t size) { return empty({size}, {kSums, target.device()}); };
  const LocalTensor lanes = scratch(count * blocks * kSumLanes);
  for_each(lanes.numel(),
           AddLanes<T>{rows.data_as<const T>(), lanes.data_as<A>(), row_size, blocks}, stream);
  int depth = full_depth(blocks);
  LocalTensor nodes = scratch(count << depth);
  for_each(nodes.numel(), AddBlocks<A>{lanes.data_as<const A>(), nodes.data_as<A>(), blocks, depth},
           stream);
  while (depth > 0) {
    const int levels = depth < kLevelsPerPass ? depth : kLevelsPerPass;
    depth -= levels;
    const LocalTensor sums = scratch(count << depth);
    // What nodes held may be reused at once: whoever gets it comes later on this stream.
    for_each(sums.numel(), AddNeighbours<A>{nodes.data_as<const A>(), sums.data_as<A>(), levels},
             stream);
    nodes = sums;
  }
  for_each(count, StoreSums<Result, A>{target.data_as<Result>(), nodes.data_as<const A>()}, stream);
}

}  // namespace

void sum_rows(const LocalTensor& target, const LocalTensor& rows, std::int64_t row_size) {
  DT_CHECK(target.dtype() == sum_dtype(rows.dtype()));
  if (row_size == 0) return fill(target, 0);  // all zero bits are 0 in every dtype
  constexpr std::int64_t kShortRow = 64;
  dispatch(rows.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if (row_size <= kShortRow) {
      run_short_sum<T>(target, rows, row_size);
    } else {
      run_sum<T>(target, rows, row_size);
    }
  });
}

}  // namespace dtrun::tensors::cuda
