// The reductions and scans of CUDA tensors. As in cuda/kernels.h: enqueued on the current stream,
// arguments checked by the caller, kUnavailable in a build without CUDA.
#pragma once

#include <cstdint>
#include <vector>

#include "dtrun/tensor/tensor.h"
#include "kernels/fold_kernel.h"

namespace dtrun::tensors::cuda {

/// reduce_elements() of loops/reduce_loop.h on a device, in the same order. `target` is contiguous.
/// A dtype is folded in its own fold's: f64, f32 or i64; log_sum_exp wants a floating-point one.
void fold_elements(const LocalTensor& target, const LocalTensor& source,
                   const std::vector<bool>& reduced, Fold fold, const FoldNumbers& numbers);

}  // namespace dtrun::tensors::cuda
