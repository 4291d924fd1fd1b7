// FoldBody: folds in the order of fold_kernel.h: a team takes 16 blocks of 1024 elements, a thread
// for each of their lanes; another one joins the blocks of a row. No copy is made of any layout.
// For .cu files only.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <type_traits>
#include <vector>

#include "cuda/any_element.h"
#include "cuda/fold_kinds.h"
#include "cuda/for_each_team.h"
#include "cuda/strided_layout.h"
#include "dtrun/tensor/ops.h"
#include "element.h"
#include "host_device.h"

namespace dtrun::tensors::cuda {

// --- The tree of blocks of fold_kernel.h, as indices. The blocks of a row are joined in pairs,
// where n of them are cut into n / 2 and the rest; so all nodes of one depth hold either floor(n /
// 2^depth) blocks or one more, and at depth floor(log2 n) the tree is full and every node holds one
// block or two. Above that depth it is an ordinary binary tree over 2^depth values. Pure.

/// floor(log2 blocks). @param blocks at least 1
DTRUN_BOTH inline int full_depth(std::int64_t blocks) {
  int depth = 0;
  while ((blocks >> (depth + 1)) != 0) ++depth;
  return depth;
}

struct BlockRange {
  std::int64_t first;
  std::int64_t count;
};

/// What node `index` of that depth holds.
DTRUN_BOTH inline BlockRange node_blocks(std::int64_t blocks, int depth, std::int64_t index) {
  BlockRange range{0, blocks};
  for (int level = depth - 1; level >= 0; --level) {
    const std::int64_t left = range.count / 2;
    if (((index >> level) & 1) != 0) {
      range.first += left;
      range.count -= left;
    } else {
      range.count = left;
    }
  }
  return range;
}

// --- The folds.

/// Where element k of row r lies.
struct FoldLayout {
  StridedLayout<1> kept;
  StridedLayout<1> folded;
  std::int64_t length = 1;  ///< of a row
  std::int64_t blocks = 1;  ///< of a row

  DTRUN_BOTH std::int64_t row(std::int64_t r) const { return kept.offsets(r).of[0]; }
  DTRUN_BOTH std::int64_t element(std::int64_t k) const {
    return folded.rank <= 1 ? k * folded.strides[0][0] : folded.offsets(k).of[0];
  }
  Neighbours neighbours() const {
    if (kept.rank == 0) return Neighbours::lanes;
    if (folded.rank == 0) return Neighbours::units;
    const auto step = [](const StridedLayout<1>& layout) { return std::abs(layout.strides[0][0]); };
    return step(kept) < step(folded) ? Neighbours::units : Neighbours::lanes;
  }
};

inline FoldLayout fold_layout(const LocalTensor& source, const std::vector<bool>& reduced) {
  Shape shapes[2];
  Strides strides[2];
  for (std::size_t d = 0; d < reduced.size(); ++d) {
    shapes[reduced[d]].push_back(source.shape()[d]);
    strides[reduced[d]].push_back(source.strides()[d]);
  }
  FoldLayout layout{make_layout<1>(shapes[0], {&strides[0]}),
                    make_layout<1>(shapes[1], {&strides[1]})};
  layout.length = layout.folded.count;
  layout.blocks = layout.length == 0 ? 1 : (layout.length + kFoldBlock - 1) / kFoldBlock;
  return layout;
}

/// Into a result of any dtype.
struct FoldTarget {
  void* data;
  DType dtype;

  template <typename Number>
  DTRUN_BOTH void store(std::int64_t row, Number number) const {
    store_number(data, dtype, row, number);
  }
};

/// What folds compute in.
template <typename T>
using FoldType =
    std::conditional_t<std::is_floating_point_v<ComputeType<T>>, ComputeType<T>, std::int64_t>;

/// Elements of a dtype that the kernel is compiled for,
template <typename T>
struct FoldElements {
  using Number = FoldType<T>;
  const T* data;

  explicit FoldElements(const LocalTensor& tensor) : data(tensor.data_as<const T>()) {}
  DTRUN_BOTH Number at(std::int64_t i) const {
    return static_cast<Number>(Element<T>::load(data[i]));
  }
};
/// and of one that is told at run time, where a kernel for each would be too many.
template <typename A>
struct AnyFoldElements {
  using Number = A;
  const void* data;
  DType dtype;

  explicit AnyFoldElements(const LocalTensor& tensor)
      : data(tensor.data()), dtype(tensor.dtype()) {}
  DTRUN_BOTH A at(std::int64_t i) const { return load_number<A>(data, dtype, i); }
};

/// Item: as many blocks as the split has units. A row's only block is its result.
template <typename Source, typename Kind>
struct FoldBlocks {
  using A = typename Source::Number;
  using Lane = typename Kind::Lane;
  struct Shared {
    Lane lanes[kThreads];
    Lane centers[kThreads];  ///< of units
  };
  Kind kind;
  FoldLayout layout;
  TeamSplit split;
  Neighbours neighbours;
  std::int64_t rows;
  Source source;
  typename Kind::State* states;
  FoldTarget target;

  struct Block {
    std::int64_t row, number, count;
  };
  /// Of a number that is too large: none.
  DTRUN_BOTH Block block_of(std::int64_t item, int unit) const {
    const std::int64_t number = item * split.units + unit;
    if (number >= rows * layout.blocks) return {0, 0, -1};
    Block block = neighbours == Neighbours::units
                      ? Block{number % rows, number / rows, 0}
                      : Block{number / layout.blocks, number % layout.blocks, 0};
    const std::int64_t left = layout.length - block.number * kFoldBlock;
    block.count = left < kFoldBlock ? left : kFoldBlock;
    return block;
  }

  DTRUN_BOTH Lane fold_lane(int round, const Block& block, int lane, const Lane& center) const {
    const std::int64_t row = layout.row(block.row);
    const std::int64_t first = block.number * kFoldBlock;
    const std::int64_t step = split.lanes;
    Lane folded = kind.start(round);
    // Several are read before the first one is used; f64's functions are too long for that.
    constexpr int kAhead = std::is_same_v<A, double> ? 1 : 4;
    std::int64_t k = lane;
    for (; k + (kAhead - 1) * step < block.count; k += kAhead * step) {
      A ahead[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        ahead[j] = source.at(row + layout.element(first + k + j * step));
      }
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        folded = kind.add(round, folded, ahead[j], center, first + k + j * step);
      }
    }
    for (; kAhead > 1 && k < block.count; k += step) {
      folded =
          kind.add(round, folded, source.at(row + layout.element(first + k)), center, first + k);
    }
    return folded;
  }

  DTRUN_BOTH void operator()(const Team<Shared>& team, std::int64_t item) const {
    for (int round = 0; round < Kind::kRounds; ++round) {
      team.each_thread([&](int thread, Shared& shared) {
        const Block block = block_of(item, split.unit(thread));
        shared.lanes[thread] =
            fold_lane(round, block, split.lane(thread), shared.centers[split.unit(thread)]);
      });
      split.join(
          team, [](Shared& shared) { return shared.lanes; },
          [&](const Lane& a, const Lane& b) { return kind.join_lanes(round, a, b); });
      if (round + 1 == Kind::kRounds) break;
      team.each_thread([&](int thread, Shared& shared) {
        if (split.lane(thread) != 0) return;
        const int unit = split.unit(thread);
        shared.centers[unit] = kind.center(shared.lanes[thread], block_of(item, unit).count);
      });
    }
    team.each_thread([&](int thread, Shared& shared) {
      const Block block = block_of(item, split.unit(thread));
      if (split.lane(thread) != 0 || block.count < 0) return;
      const auto state =
          kind.state(shared.centers[split.unit(thread)], shared.lanes[thread], block.count);
      if (layout.blocks == 1) {
        target.store(block.row, kind.finish(state));
      } else {
        states[block.row * layout.blocks + block.number] = state;
      }
    });
  }
};

/// Item: a row. Its nodes are joined where they lie, neighbours first.
template <typename Kind>
struct JoinBlocks {
  using State = typename Kind::State;
  struct Shared {};
  Kind kind;
  std::int64_t blocks;
  int depth;
  const State* states;
  State* nodes;
  FoldTarget target;

  DTRUN_BOTH void operator()(const Team<Shared>& team, std::int64_t row) const {
    const State* const from = states + row * blocks;
    State* const node = nodes + (row << depth);
    const std::int64_t count = std::int64_t{1} << depth;
    team.each_thread([&](int thread, Shared&) {
      for (std::int64_t i = thread; i < count; i += kThreads) {
        const BlockRange range = node_blocks(blocks, depth, i);
        node[i] = range.count == 1 ? from[range.first]
                                   : kind.join_states(from[range.first], from[range.first + 1]);
      }
    });
    for (std::int64_t distance = 1; distance < count; distance *= 2) {
      team.each_thread([&](int thread, Shared&) {
        for (std::int64_t i = 2 * distance * thread; i < count; i += 2 * distance * kThreads) {
          node[i] = kind.join_states(node[i], node[i + distance]);
        }
      });
    }
    team.each_thread([&](int thread, Shared&) {
      if (thread == 0) target.store(row, kind.finish(node[0]));
    });
  }
};

template <typename Source, typename Kind>
void run_fold(const LocalTensor& target, const LocalTensor& source, const FoldLayout& layout,
              const Kind& kind) {
  using State = typename Kind::State;
  const Stream stream = current_stream(source.device().index);
  const std::int64_t rows = target.numel();
  const auto scratch = [&](std::int64_t count) {
    const auto bytes = count * static_cast<std::int64_t>(sizeof(State));
    return empty({bytes}, {DType::u8, source.device()});
  };
  const bool is_joined = layout.blocks > 1;
  const LocalTensor states = scratch(is_joined ? rows * layout.blocks : 0);
  const FoldTarget to{target.data(), target.dtype()};
  const TeamSplit split = TeamSplit::of_lanes(
      is_joined || layout.length > kFoldLanes ? kFoldLanes : layout.length, layout.neighbours());
  for_each_team((rows * layout.blocks + split.units - 1) / split.units,
                FoldBlocks<Source, Kind>{kind, layout, split, layout.neighbours(), rows,
                                         Source(source), states.data_as<State>(), to},
                stream);
  if (!is_joined) return;
  const int depth = full_depth(layout.blocks);
  const LocalTensor nodes = scratch(rows << depth);
  for_each_team(rows,
                JoinBlocks<Kind>{kind, layout.blocks, depth, states.data_as<const State>(),
                                 nodes.data_as<State>(), to},
                stream);
}

/// Positions of extremes, moments, exponents and powers (fold_moments.cu).
bool is_rare_fold(Fold fold);
void run_rare_fold(const LocalTensor& target, const LocalTensor& source, const FoldLayout& layout,
                   Fold fold, const FoldNumbers& numbers);

}  // namespace dtrun::tensors::cuda
