// Folds in the order of fold_kernel.h: a team takes 16 blocks of 1024 elements, a thread for each
// of their lanes; another one joins the blocks of a row. No copy is made of any layout.
#include "cuda/any_element.h"
#include "cuda/fold_kinds.h"
#include "cuda/fold_order.h"
#include "cuda/for_each_team.h"
#include "cuda/kernels.h"
#include "cuda/reductions.h"
#include "cuda/strided_layout.h"
#include "dtrun/base/check.h"
#include "element.h"

namespace dtrun::tensors::cuda {
namespace {

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

FoldLayout fold_layout(const LocalTensor& source, const std::vector<bool>& reduced) {
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

/// Item: as many blocks as the split has units. A row's only block is its result.
template <typename T, typename Kind>
struct FoldBlocks {
  using A = FoldType<T>;
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
  const T* source;
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
    const T* const from = source + layout.row(block.row);
    const std::int64_t first = block.number * kFoldBlock;
    Lane folded = kind.start(round);
    for (std::int64_t k = lane; k < block.count; k += split.lanes) {
      const A x = static_cast<A>(Element<T>::load(from[layout.element(first + k)]));
      folded = kind.add(round, folded, x, center, first + k);
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

template <typename T, typename Kind>
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
                FoldBlocks<T, Kind>{kind, layout, split, layout.neighbours(), rows,
                                    source.data_as<const T>(), states.data_as<State>(), to},
                stream);
  if (!is_joined) return;
  const int depth = full_depth(layout.blocks);
  const LocalTensor nodes = scratch(rows << depth);
  for_each_team(rows,
                JoinBlocks<Kind>{kind, layout.blocks, depth, states.data_as<const State>(),
                                 nodes.data_as<State>(), to},
                stream);
}

template <typename A>
NumberFold<A> number_fold(Fold fold, const FoldNumbers& numbers) {
  using Join = FoldJoin;
  using Map = FoldMap;
  using End = FoldEnd;
  switch (fold) {
    case Fold::sum:
      return {Join::add, Map::itself, End::none, numbers};
    case Fold::mean:
      return {Join::add, Map::itself, End::mean, numbers};
    case Fold::product:
      return {Join::multiply, Map::itself, End::none, numbers};
    case Fold::maximum:
      return {Join::greatest, Map::itself, End::none, numbers};
    case Fold::minimum:
      return {Join::least, Map::itself, End::none, numbers};
    case Fold::any:
      return {Join::add, Map::not_zero, End::truth, numbers};
    case Fold::all:
      return {Join::multiply, Map::not_zero, End::none, numbers};
    case Fold::norm_0:
      return {Join::add, Map::not_zero, End::none, numbers};
    case Fold::norm_1:
      return {Join::add, Map::magnitude, End::none, numbers};
    case Fold::norm_2:
      return {Join::add, Map::square, End::root, numbers};
    case Fold::norm_p:
      return {Join::add, Map::power, End::power, numbers};
    case Fold::norm_infinity:
      return {Join::greatest, Map::magnitude, End::none, numbers};
    default:
      break;
  }
  DT_CHECK(fold == Fold::norm_minus_infinity);
  return {Join::least, Map::magnitude, End::none, numbers};
}

template <typename T>
void run_floating_fold(const LocalTensor& target, const LocalTensor& source,
                       const FoldLayout& layout, Fold fold, const FoldNumbers& numbers) {
  using A = FoldType<T>;
  if (fold == Fold::variance || fold == Fold::deviation) {
    const FoldEnd end = fold == Fold::variance ? FoldEnd::none : FoldEnd::root;
    return run_fold<T>(target, source, layout, MomentsFold<A>{end, numbers});
  }
  DT_CHECK(fold == Fold::log_sum_exp);
  run_fold<T>(target, source, layout, ExponentsFold<A>{});
}

bool has_moments_or_exponents(Fold fold) {
  return fold == Fold::variance || fold == Fold::deviation || fold == Fold::log_sum_exp;
}

}  // namespace

void fold_elements(const LocalTensor& target, const LocalTensor& source,
                   const std::vector<bool>& reduced, Fold fold, const FoldNumbers& numbers) {
  if (target.numel() == 0) return;
  const FoldLayout layout = fold_layout(source, reduced);
  dispatch(source.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if (fold == Fold::index_of_maximum || fold == Fold::index_of_minimum) {
      const FoldJoin how = fold == Fold::index_of_maximum ? FoldJoin::greatest : FoldJoin::least;
      return run_fold<T>(target, source, layout, IndexFold<FoldType<T>>{how});
    }
    if (has_moments_or_exponents(fold)) {
      if constexpr (std::is_floating_point_v<ComputeType<T>>) {
        return run_floating_fold<T>(target, source, layout, fold, numbers);
      }
      DT_CHECK(false);
    }
    run_fold<T>(target, source, layout, number_fold<FoldType<T>>(fold, numbers));
  });
}

}  // namespace dtrun::tensors::cuda
