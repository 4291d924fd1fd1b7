// DeviceCreation: the random numbers, lines and triangles that a device makes against the host's,
// as gtest's expectations. Run as DeviceSuite's.
#pragma once

#include "dtrun/tensor/device.h"

namespace dtrun::tensors {

/// Every form and dtype; whole tensors, and blocks of larger ones.
void expect_random_as_on_host(Device device);
void expect_lines_and_triangles_as_on_host(Device device);

}  // namespace dtrun::tensors
