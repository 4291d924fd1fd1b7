// Rows of one number for each class, and the class of each row. Any floating point dtype. On
// CUDA the call waits for the device, to see whether all classes are.
#pragma once

#include <cstdint>

#include "dtrun/tensor/ops/rows.h"
#include "dtrun/tensor/tensor.h"

namespace dtrun::tensors {

/// Of each row of [rows, classes] the number of its class, i64 [rows]; 0 where the class is the
/// ignored one, or others have it. @throws Error kInvalidArgument naming row and class, where a
/// class is not one
LocalTensor pick_classes(const LocalTensor& a, const LocalTensor& target, std::int64_t ignored,
                         ClassCut cut = {});
/// [rows] -> [rows, classes]: each number at its row's class, 0 beside it.
LocalTensor place_classes(const LocalTensor& values, const LocalTensor& target,
                          std::int64_t classes, std::int64_t ignored);

}  // namespace dtrun::tensors
