// map_elements: runs a pointwise operator's inner loop over operands of any layout and dtype.
// Operands that are not a dense run of the loop's dtype (strided, broadcast, f16, bf16, mixed
// dtypes) are converted 512 elements at a time, on the stack. A short row that all rows share is
// written down for many rows at once, in memory that the thread keeps for its next loop.
#pragma once

#include <span>

#include "kernels/map_kernel.h"
#include "loops/strided_loop.h"

namespace dtrun::tensors {

/// An input or the output of a map.
struct MapOperand {
  char* data;
  const Dims* shape;    ///< nullptr: one element for all
  const Dims* strides;  ///< elements
  DType stored;
  DType computed;  ///< what the inner loop takes
  /// Between the two, where an input is rounded to the dtype of the result first.
  DType through;

  static MapOperand of(const LocalTensor& tensor, DType computed) {
    return {static_cast<char*>(tensor.data()),
            &tensor.shape(),
            &tensor.strides(),
            tensor.dtype(),
            computed,
            computed};
  }
  /// @param element lives as long as the call
  static MapOperand of_number(void* element, DType stored, DType computed) {
    return {static_cast<char*>(element), nullptr, nullptr, stored, computed, computed};
  }
};

/// @param shape of the output; the inputs broadcast to it
/// @param output, inputs at most three; an input that overlaps the output is the same view of it
void map_elements(const Shape& shape, const MapOperand& output, std::span<const MapOperand> inputs,
                  MapRun run, const MapNumbers& numbers);

/// The same where all operands are dense runs of what the loop takes.
struct DenseMap {
  void* output;
  std::array<const void*, kMostOperands - 1> inputs;
  int input_count;
  std::int64_t input_size;  ///< bytes of an element, the same for all inputs
  std::int64_t output_size;
};
void map_dense(const DenseMap& map, std::int64_t count, MapRun run, const MapNumbers& numbers);

}  // namespace dtrun::tensors
