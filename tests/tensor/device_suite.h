// DeviceSuite: every operation on a device's tensors against the same on the host's, as gtest's
// expectations. Run on a simulated device everywhere, and on a real one where there is one.
#pragma once

#include "dtrun/tensor/device.h"

namespace dtrun::tensors {

void expect_creation_as_on_host(Device device);
void expect_copies_as_on_host(Device device);
void expect_conversions_as_on_host(Device device);
void expect_pointwise_as_on_host(Device device);
void expect_sums_as_on_host(Device device);
void expect_products_as_on_host(Device device);
void expect_combinations_as_on_host(Device device);
void expect_joining_as_on_host(Device device);
/// Streams: results are ordered by events, memory is reused when it may be.
void expect_ordered_streams(Device device);

}  // namespace dtrun::tensors
