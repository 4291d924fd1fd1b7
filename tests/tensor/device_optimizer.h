// DeviceOptimizer: the optimizer steps of a device's parameters against the host's, as gtest's
// expectations. Run as DeviceSuite's.
#pragma once

#include "dtrun/tensor/device.h"

namespace dtrun::tensors {

/// Lists of many tensors of both dtypes, some empty, some that do not begin where packs may.
void expect_steps_as_on_host(Device device);

}  // namespace dtrun::tensors
