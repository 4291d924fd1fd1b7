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
/// Results whose elements lie side by side are folded together, so many at most.
constexpr std::int64_t kPanelWidth = 256;
constexpr std::int64_t kMostStateBytes = 32;

/// What a fold knows besides the elements.
struct FoldNumbers {
  std::int64_t count = 0;  ///< elements of a result
  double number = 0;       ///< the power of a norm, the correction of a variance
};

struct FoldKernel {
  DType compute;  ///< of the elements that block and panel take
  DType result;   ///< of what finish gives
  std::int64_t state_bytes;
  /// @param first the number of the block's first element
  void (*block)(void* state, const void* data, std::int64_t count, std::int64_t first,
                const FoldNumbers& numbers);
  /// `width` blocks at once, element i of all of them in the row at data + i * row_step (bytes);
  /// nullptr where there is none
  void (*panel)(void* states, const char* data, std::int64_t row_step, std::int64_t count,
                std::int64_t width);
  /// left = left and right together
  void (*combine)(void* left, const void* right);
  /// @param state nullptr: of no elements
  void (*finish)(void* result, const void* state, const FoldNumbers& numbers);
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

/// @param compute f64, f32; i64 for sum, product, maximum, minimum and indices; boolean for any and
/// all (DT_CHECK)
FoldKernel fold_kernel(Fold fold, DType compute);

}  // namespace dtrun::tensors
