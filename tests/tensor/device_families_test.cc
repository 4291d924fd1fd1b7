// Reductions, scans, rows, picks and sorts of CUDA tensors, on a simulated device whose kernels run
// on the host.
#include "tensor/device_families.h"

#include <gtest/gtest.h>

#include "cuda/context.h"
#include "dtrun/tensor/cuda.h"
#include "tensor/simulated_cuda.h"

namespace dtrun::tensors {
namespace {

constexpr Device kSecondGpu{DeviceType::cuda, 1};

class DeviceFamiliesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cuda::is_built()) GTEST_SKIP() << "built without CUDA: there are no kernels";
  }
  cuda::SimulatedCuda simulation_;
  cuda::CudaContext context_{cuda::SimulatedCuda::api(), cuda::SimulatedCuda::blas()};
  cuda::ContextGuard guard_{context_};
};

TEST_F(DeviceFamiliesTest, ReductionsAreAsOnTheHost) {
  expect_reductions_as_on_host(kSecondGpu);
}
TEST_F(DeviceFamiliesTest, ScansAreAsOnTheHost) {
  expect_scans_as_on_host(kSecondGpu);
}
TEST_F(DeviceFamiliesTest, RowsAreAsOnTheHost) {
  expect_rows_as_on_host(kSecondGpu);
}
TEST_F(DeviceFamiliesTest, ClassRowsAreAsOnTheHost) {
  expect_class_rows_as_on_host(kSecondGpu);
}
TEST_F(DeviceFamiliesTest, ConvolutionsAreAsOnTheHost) {
  expect_convolutions_as_on_host(kSecondGpu);
}
TEST_F(DeviceFamiliesTest, PicksAreAsOnTheHost) {
  expect_picks_as_on_host(kSecondGpu);
}
TEST_F(DeviceFamiliesTest, PlacementsHaveTheBitsOfTheHosts) {
  expect_placements_as_on_host(kSecondGpu);
}
TEST_F(DeviceFamiliesTest, RearrangementsAreAsOnTheHost) {
  expect_rearrangements_as_on_host(kSecondGpu);
}
TEST_F(DeviceFamiliesTest, SortingIsAsOnTheHost) {
  expect_sorting_as_on_host(kSecondGpu);
}

}  // namespace
}  // namespace dtrun::tensors
