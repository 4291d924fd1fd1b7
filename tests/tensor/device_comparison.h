// What tests of devices compare, as gtest's expectations: a device's tensors with the host's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dtrun/tensor/tensor.h"
#include "tensor/all_dtypes.h"

namespace dtrun::tensors {

/// Bit by bit, but that all NaN are one: a device has its own.
void expect_same(const LocalTensor& got, const LocalTensor& expected, Device device,
                 const std::string& what);
/// What was computed in another order, or by another exp(): within some ulps of the largest number.
void expect_close(const LocalTensor& got, const LocalTensor& expected, Device device,
                  const std::string& what);

LocalTensor numbers(const Shape& shape, DType dtype, std::uint64_t seed);
/// Layouts of one shape [4, 6]: contiguous, transposed, cut out, off by an element, repeated.
std::vector<LocalTensor> layouts_of(DType dtype, std::uint64_t seed);
/// The same layout on the device.
LocalTensor like(const LocalTensor& host, Device device);

}  // namespace dtrun::tensors
