// One loop over up to three strided operands of one shape, cut into rows for a kernel. Dims that
// lie one after the other in memory are merged, so that contiguous operands are one long row.
#pragma once

#include <cstdint>
#include <span>

#include "dtrun/tensor/tensor.h"

namespace dtrun::tensors {

/// What the loop walks over. Strides in elements; a stride of 0 repeats an element.
struct LoopOperand {
  void* data;
  Strides strides;
  std::size_t item_size;

  static LoopOperand of(const LocalTensor& tensor);
};

/// Handles `count` elements; operand k starts at operands[k] and steps strides[k] bytes.
using RowKernel = void (*)(char* const* operands, const std::int64_t* strides, std::int64_t count);

/// The order of the rows and of the elements is not promised.
void for_each_row(const Shape& shape, std::span<const LoopOperand> operands, RowKernel kernel);

}  // namespace dtrun::tensors
