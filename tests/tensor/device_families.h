// DeviceFamilies: the reductions, scans, rows, picks and sorts of a device's tensors against the
// same on the host's, as gtest's expectations. Run as DeviceSuite's.
#pragma once

#include "dtrun/tensor/device.h"

namespace dtrun::tensors {

void expect_reductions_as_on_host(Device device);
void expect_scans_as_on_host(Device device);
void expect_rows_as_on_host(Device device);
void expect_class_rows_as_on_host(Device device);
void expect_convolutions_as_on_host(Device device);
void expect_attention_as_on_host(Device device);
void expect_picks_as_on_host(Device device);
void expect_placements_as_on_host(Device device);
void expect_rearrangements_as_on_host(Device device);
void expect_sorting_as_on_host(Device device);

}  // namespace dtrun::tensors
