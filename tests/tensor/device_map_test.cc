// Pointwise operators, creation and optimizer steps of CUDA tensors, on a simulated device whose
// kernels run on the host.
#include "tensor/device_map.h"

#include <gtest/gtest.h>

#include "tensor/device_creation.h"
#include "tensor/device_optimizer.h"
#include "tensor/simulated_device_test.h"

namespace dtrun::tensors {
namespace {

constexpr Device kMapGpu{DeviceType::cuda, 1};

using DeviceMapTest = SimulatedDeviceTest;

TEST_F(DeviceMapTest, EveryOperatorAndDTypeIsAsOnTheHost) {
  expect_map_as_on_host(kMapGpu);
}
TEST_F(DeviceMapTest, MixedDTypesAndNumbersAreAsOnTheHost) {
  expect_mixed_map_as_on_host(kMapGpu);
}
TEST_F(DeviceMapTest, InPlaceIsAsOnTheHost) {
  expect_map_in_place_as_on_host(kMapGpu);
}
TEST_F(DeviceMapTest, ErrorsAreAsOnTheHost) {
  expect_map_errors_as_on_host(kMapGpu);
}
TEST_F(DeviceMapTest, RandomNumbersAreTheHosts) {
  expect_random_as_on_host(kMapGpu);
}
TEST_F(DeviceMapTest, LinesAndTrianglesAreTheHosts) {
  expect_lines_and_triangles_as_on_host(kMapGpu);
}
TEST_F(DeviceMapTest, OptimizerStepsAreTheHosts) {
  expect_steps_as_on_host(kMapGpu);
}

}  // namespace
}  // namespace dtrun::tensors
