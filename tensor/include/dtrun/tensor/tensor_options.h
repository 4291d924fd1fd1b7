// What the functions that make tensors take besides sizes. Values.
#pragma once

#include <cstdint>

#include "dtrun/tensor/device.h"
#include "dtrun/tensor/dtype.h"

namespace dtrun::tensors::values {

struct TensorOptions {
  DType dtype = DType::f32;
  Device device = kCpu;
};

/// Which random numbers.
struct RandomKey {
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;  ///< tells tensors of one seed apart
};

}  // namespace dtrun::tensors::values

namespace dtrun::tensors {
using values::RandomKey;
using values::TensorOptions;
}  // namespace dtrun::tensors
