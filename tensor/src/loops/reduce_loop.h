// reduce_elements: folds the elements of each result (kernels/fold_kernel.h), of any layout and
// dtype, without a copy of the tensor: what is not a dense run of the fold's dtype is brought into
// that form a block at a time. Dealt to the calling thread's pool.
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
