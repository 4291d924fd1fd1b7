// DeviceMap: every pointwise operator of a device's tensors against the same on the host's, as
// gtest's expectations. Run as DeviceSuite's.
#pragma once

#include "dtrun/tensor/device.h"

namespace dtrun::tensors {

/// Every operator, for every dtype, of every layout: the same bits, or the same error; functions
/// that are approximated within a few ulps.
void expect_map_as_on_host(Device device);
/// Operands of two dtypes, numbers, and tensors of the cpu that are numbers.
void expect_mixed_map_as_on_host(Device device);
void expect_map_in_place_as_on_host(Device device);
/// Integers by 0, and tensors of two devices.
void expect_map_errors_as_on_host(Device device);

}  // namespace dtrun::tensors
