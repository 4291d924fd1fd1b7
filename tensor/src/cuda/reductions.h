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

/// cumsum() and its like along dim, of i64 and f64, into a contiguous `target`. Lines of more than
/// 64 elements, where there are fewer than 4096 of them, are cut into tiles: their order of
/// additions is not the host's.
enum class ScanJoin : std::uint8_t { add, multiply };
enum class ScanFrom : std::uint8_t { first, last };
void scan_elements(const LocalTensor& target, const LocalTensor& source, int dim, ScanJoin join,
                   ScanFrom from);

}  // namespace dtrun::tensors::cuda
