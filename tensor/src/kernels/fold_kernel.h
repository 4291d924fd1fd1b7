// FoldKernel: how one reduction treats the elements of a result. They are cut into blocks of
// kFoldBlock by their row-major order; each block gives a state; states are combined in pairs,
// where n of them are cut into n / 2 and the rest. So a result depends neither on the layout nor on
// the number of threads. Within a block element i goes to lane i mod 16, and lanes are combined in
// pairs: more exact than one running sum, and what vector registers like.
#pragma once

#include <cstdint>

#include "dtrun/tensor/dtype.h"

namespace dtrun::tensors {

constexpr std::int64_t kFoldBlock = 1024;
constexpr std::int64_t kFoldLanes = 16;
/// Results whose elements lie side by side are folded together, at most as many as have so many
/// bytes of states.
constexpr std::int64_t kPanelBytes = 4096;
/// Blocks whose lanes are filled together: as many as hide the time that one addition takes.
constexpr std::int64_t kFoldsAtOnce = 4;

/// What a fold knows besides the elements.
struct FoldNumbers {
  std::int64_t count = 0;  ///< elements of a result
  double number = 0;       ///< the power of a norm, the correction of a variance
};

struct FoldKernel {
  DType takes;   ///< of the elements that block, four and panel take
  DType result;  ///< of what finish gives
  std::int64_t state_bytes;
  /// @param first the number of the block's first element
  void (*block)(void* state, const void* data, std::int64_t count, std::int64_t first,
                const FoldNumbers& numbers);
  /// The first `width` states: all of them together, the blocks' in the order of the tree.
  void (*join)(void* states, std::int64_t blocks, std::int64_t width);
  /// @param states nullptr: of no elements
  void (*finish)(void* results, const void* states, std::int64_t width, const FoldNumbers& numbers);
  /// `fours` times four blocks of `count` elements at once, all `step` bytes apart; nullptr where
  /// there is none.
  void (*four)(void* states, const char* data, std::int64_t step, std::int64_t count,
               std::int64_t fours) = nullptr;
  /// `width` blocks at once, element i of all of them in the row at data + i * row_step (bytes);
  /// nullptr where there is none. @param first as block()'s
  void (*panel)(void* states, const char* data, std::int64_t row_step, std::int64_t count,
                std::int64_t width, std::int64_t first) = nullptr;
  /// Blocks of one run may be folded as one, whose state is then that of each: the greatest of a
  /// few numbers is not changed by numbers that it is the greatest of, too.
  bool blocks_share = false;
};

enum class Fold : std::uint8_t {
  sum,
  mean,
  product,
  maximum,
  minimum,
  any,
  all,
  index_of_maximum,
  index_of_minimum,
  variance,
  deviation,
  norm_0,  ///< how many are not 0
  norm_1,
  norm_2,
  norm_p,
  norm_infinity,
  norm_minus_infinity,
  log_sum_exp,
};

/// What a fold of elements of that dtype computes in: f64; f32 for what is shorter; else i64.
DType fold_dtype(DType source);

/// @param source of the elements in memory; integers for sum, product, maximum, minimum, indices,
/// any and all only (DT_CHECK)
FoldKernel fold_kernel(Fold fold, DType source);

}  // namespace dtrun::tensors
