// Vector math of CUDA devices: CUDA's own functions, by the names of kernels/vector_math.h. For .cu
// files only.
#pragma once

#include <cmath>

#include "host_device.h"

namespace dtrun::tensors::vector_math {
// The host's functions of these names are others.
namespace {

#define DTRUN_DEVICE_FUNCTION(name)         \
  DTRUN_BOTH inline float name(float x) {   \
    return ::name##f(x);                    \
  }                                         \
  DTRUN_BOTH inline double name(double x) { \
    return ::name(x);                       \
  }
#define DTRUN_DEVICE_FUNCTION_OF_TWO(name)            \
  DTRUN_BOTH inline float name(float x, float y) {    \
    return ::name##f(x, y);                           \
  }                                                   \
  DTRUN_BOTH inline double name(double x, double y) { \
    return ::name(x, y);                              \
  }
DTRUN_DEVICE_FUNCTION(exp)
DTRUN_DEVICE_FUNCTION(log)
DTRUN_DEVICE_FUNCTION(log2)
DTRUN_DEVICE_FUNCTION(log10)
DTRUN_DEVICE_FUNCTION(log1p)
DTRUN_DEVICE_FUNCTION(expm1)
DTRUN_DEVICE_FUNCTION(sin)
DTRUN_DEVICE_FUNCTION(cos)
DTRUN_DEVICE_FUNCTION(tan)
DTRUN_DEVICE_FUNCTION(sinh)
DTRUN_DEVICE_FUNCTION(cosh)
DTRUN_DEVICE_FUNCTION(tanh)
DTRUN_DEVICE_FUNCTION(asin)
DTRUN_DEVICE_FUNCTION(acos)
DTRUN_DEVICE_FUNCTION(atan)
DTRUN_DEVICE_FUNCTION(asinh)
DTRUN_DEVICE_FUNCTION(acosh)
DTRUN_DEVICE_FUNCTION(atanh)
DTRUN_DEVICE_FUNCTION(erf)
DTRUN_DEVICE_FUNCTION(erfc)
DTRUN_DEVICE_FUNCTION_OF_TWO(pow)
DTRUN_DEVICE_FUNCTION_OF_TWO(atan2)
DTRUN_BOTH inline float exp_of_negative(float x) {
  return ::expf(x);
}
DTRUN_BOTH inline double exp_of_negative(double x) {
  return ::exp(x);
}
#undef DTRUN_DEVICE_FUNCTION
#undef DTRUN_DEVICE_FUNCTION_OF_TWO

}  // namespace
}  // namespace dtrun::tensors::vector_math
