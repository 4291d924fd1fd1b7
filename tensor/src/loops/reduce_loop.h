// reduce_elements: folds the elements of each result (kernels/fold_kernel.h) for any layout and
// dtype, without a copy of the tensor: elements that are not a dense run of the fold's dtype are
// converted a block at a time. Runs on the calling thread's pool.
#pragma once

#include <vector>

#include "dtrun/tensor/tensor.h"
#include "kernels/fold_kernel.h"

namespace dtrun::tensors {

/// @param target contiguous; its elements are the results, in the row-major order of the dims that
/// are not reduced
/// @param reduced per dim of `source`
void reduce_elements(const LocalTensor& target, const LocalTensor& source,
                     const std::vector<bool>& reduced, const FoldKernel& kernel,
                     const FoldNumbers& numbers);

}  // namespace dtrun::tensors
