// Random numbers keyed by seed, stream and the element's place in the whole (Philox 4x32-10): the
// same on every layout, on every machine and device, for every number of threads. A block starts at
// `offsets` of a tensor of `global_shape`.
#pragma once

#include <cstdint>

#include "dtrun/tensor/tensor.h"
#include "dtrun/tensor/tensor_options.h"

namespace dtrun::tensors {

/// Where a block lies.
struct RandomBlock {
  Shape global_shape;
  Shape offsets;
  Shape shape;
  /// All of a tensor.
  static RandomBlock whole(const Shape& shape) { return {shape, Shape(shape.size(), 0), shape}; }
};

/// Of [0, 1), as many random bits as the dtype has: multiples of 2^-53 in f64, 2^-24 in f32, 2^-11
/// in f16, 2^-8 in bf16. @throws Error kInvalidArgument for integers
LocalTensor rand_block(const RandomBlock& block, RandomKey key, TensorOptions options = {});
/// Whole numbers of [low, high). @throws Error kInvalidArgument where there are none
LocalTensor randint_block(std::int64_t low, std::int64_t high, const RandomBlock& block,
                          RandomKey key, TensorOptions options = {.dtype = DType::i64});
/// 0, 1, ... n-1 in a random order. Made on the CPU, and copied to where it belongs.
LocalTensor randperm(std::int64_t n, RandomKey key, TensorOptions options = {.dtype = DType::i64});
/// 0 with probability p, 1 / (1 - p) otherwise.
LocalTensor dropout_mask(double p, const RandomBlock& block, RandomKey key,
                         TensorOptions options = {});
/// The tensor times that mask, in one pass. @param a floating point, of the block's shape
LocalTensor dropout(const LocalTensor& a, double p, const RandomBlock& block, RandomKey key);

}  // namespace dtrun::tensors
