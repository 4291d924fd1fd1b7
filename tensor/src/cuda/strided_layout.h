// StridedLayout: up to three strided operands over one shape, as kernels take it: by value, with
// the dims that lie one after the other merged. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "dtrun/tensor/tensor.h"
#include "host_device.h"

namespace dtrun::tensors::cuda {

inline constexpr int kMaxLayoutDims = 12;

template <int kOperands>
struct StridedLayout {
  std::int64_t count = 0;
  int rank = 0;
  std::int64_t sizes[kMaxLayoutDims] = {};  ///< innermost first
  std::int64_t strides[kOperands][kMaxLayoutDims] = {};

  struct Offsets {
    std::int64_t of[kOperands];
  };

  /// Every operand's place of element i (row-major), in elements.
  DTRUN_BOTH Offsets offsets(std::int64_t i) const {
    // Divisions in 64 bits take several times as long.
    return count <= std::numeric_limits<std::int32_t>::max()
               ? offsets_in<std::uint32_t>(static_cast<std::uint32_t>(i))
               : offsets_in<std::uint64_t>(static_cast<std::uint64_t>(i));
  }

  /// One run of elements each, or one element that repeats.
  bool is_flat() const { return rank == 0 || (rank == 1 && all_steps_are_0_or_1()); }
  /// Of a flat layout: 1 or 0.
  std::int64_t step(int operand) const { return rank == 0 ? 0 : strides[operand][0]; }

 private:
  template <typename Index>
  DTRUN_BOTH Offsets offsets_in(Index rest) const {
    Offsets found{};
    for (int d = 0; d < rank; ++d) {
      const Index size = static_cast<Index>(sizes[d]);
      const std::int64_t position = static_cast<std::int64_t>(rest % size);
      rest /= size;
      for (int k = 0; k < kOperands; ++k) found.of[k] += position * strides[k][d];
    }
    return found;
  }
  bool all_steps_are_0_or_1() const {
    for (int k = 0; k < kOperands; ++k) {
      if (strides[k][0] != 0 && strides[k][0] != 1) return false;
    }
    return true;
  }
};

/// @throws Error kInvalidArgument: more than 12 dims cannot be merged. The dispatcher adds the op
[[noreturn]] void refuse_dims(const Shape& shape);

template <int kOperands>
StridedLayout<kOperands> make_layout(const Shape& shape,
                                     const std::array<const Strides*, kOperands>& strides) {
  StridedLayout<kOperands> layout;
  layout.count = numel(shape);
  for (std::size_t d = shape.size(); d-- > 0;) {
    if (shape[d] == 1) continue;
    bool merges = layout.rank > 0;
    for (int k = 0; merges && k < kOperands; ++k) {
      const int last = layout.rank - 1;
      merges = (*strides[k])[d] == layout.strides[k][last] * layout.sizes[last];
    }
    if (merges) {
      layout.sizes[layout.rank - 1] *= shape[d];
      continue;
    }
    if (layout.rank == kMaxLayoutDims) refuse_dims(shape);
    layout.sizes[layout.rank] = shape[d];
    for (int k = 0; k < kOperands; ++k) layout.strides[k][layout.rank] = (*strides[k])[d];
    ++layout.rank;
  }
  return layout;
}

}  // namespace dtrun::tensors::cuda
