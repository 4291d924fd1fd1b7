// Pointwise operators on a CUDA device: one call for all of them. Enqueued on the device's current
// stream. Implemented in map.cc and map_*.cu; a build without CUDA throws kUnavailable.
#pragma once

#include <array>
#include <cstdint>

#include "dtrun/tensor/tensor.h"
#include "kernels/map_function.h"
#include "kernels/map_numbers.h"

namespace dtrun::tensors::cuda {

inline constexpr int kMostInputs = 3;

/// A tensor on the device, or a number in the dtype that the call computes in.
struct MapInput {
  const void* data;  ///< nullptr: a number
  DType stored;
  DType through;  ///< rounds to it first, where it is f16, bf16, i16, i8 or u8
  double floating;
  std::int64_t integer;
};

/// What a kernel takes, besides where its elements lie.
struct MapArguments {
  MapFunction function;
  MapNumbers numbers;
  int input_count;
  std::array<MapInput, kMostInputs> inputs;
  void* target;
  DType target_dtype;
  std::uint8_t* has_zero;  ///< set where an integer would be divided by 0; nullptr: cannot be
};

struct MapCall {
  MapArguments arguments;
  DType compute;  ///< f64, f32, i64 or i32; bool for logic
  const LocalTensor& target;
  std::array<const LocalTensor*, kMostInputs> tensors;  ///< they broadcast to it; nullptr: a number
};

/// target = function(inputs). The target may be an input, but not overlap one otherwise. It is of
/// the dtype that the call computes in, or bool, or of f16, bf16 where that is f32, or of i16, i8,
/// u8 where it is i32.
void map(const MapCall& call);

// One per family; map() chooses.
void map_arithmetic(const MapCall& call);
void map_comparison(const MapCall& call);
void map_elementary(const MapCall& call);
void map_exponential(const MapCall& call);
void map_trigonometric(const MapCall& call);

}  // namespace dtrun::tensors::cuda
