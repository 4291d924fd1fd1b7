// device_product: a product of a device's matrices that is not rounded to a half.
#pragma once

#include "dtrun/tensor/tensor.h"

namespace dtrun::tensors {

/// factor * a b, as matmul() of two dims and more has it; of f64 in f64, else in f32: numbers that
/// f16 does not hold are not infinite. Of a device's floating-point tensors (DT_CHECK).
/// @throws as matmul()
LocalTensor device_product(const LocalTensor& a, const LocalTensor& b, double factor);

}  // namespace dtrun::tensors
