// Copies, equality, creation and integer products of CUDA tensors; pointwise operators are in
// cuda/map.h, folds in cuda/reductions.h. All tensors of a call lie on one device; the work is
// enqueued on its current stream, and the call returns at once. Shapes and dtypes have been checked
// by the caller (DT_CHECK). Implemented in *.cu; a build without CUDA throws kUnavailable.
#pragma once

#include <cstdint>

#include "dtrun/tensor/cuda_stream.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/reduce_kernel.h"
#include "formulas/line.h"

namespace dtrun::tensors::cuda {

// copy.cu
/// Copies and converts; equal shapes.
void convert(const LocalTensor& target, const LocalTensor& source);
/// Sets every element to the first item_size bytes of `bits`.
void fill(const LocalTensor& target, std::uint64_t bits);

// equality.cu
/// Clears the one element of `flag` (u8) where a pair differs; NaN equals nothing.
void clear_if_different(const LocalTensor& flag, const LocalTensor& a, const LocalTensor& b);

// generate.cu
/// start + (first + i) * step; f64 or i64, contiguous.
void fill_sequence(const LocalTensor& target, double start, double step, std::int64_t first);
/// line.at(first + i); f64, contiguous.
void fill_line(const LocalTensor& target, const Line& line, std::int64_t first);
/// Sets to 0 what lies above or under the diagonal of contiguous matrices.
enum class Triangle { lower, upper };
void clear_beside(const LocalTensor& matrices, std::int64_t diagonal, Triangle kept);

// matmul.cu
/// Integers, 2-D, result contiguous.
void multiply_integers(const LocalTensor& result, const LocalTensor& a, const LocalTensor& b);

// reduce.cu
/// combine() and divide() of reduce_kernel.h, on device memory and a stream.
void enqueue_combine(CombineOp op, DType dtype, void* accumulator, const void* input,
                     std::int64_t count, const Stream& stream);
void enqueue_divide(DType dtype, void* data, std::int64_t count, std::int64_t divisor,
                    const Stream& stream);

}  // namespace dtrun::tensors::cuda
