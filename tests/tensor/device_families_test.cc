// Reductions, scans, rows, picks and sorts of CUDA tensors, on a simulated device whose kernels run
// on the host.
#include "tensor/device_families.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/index.h"
#include "tensor/simulated_device_test.h"

namespace dtrun::tensors {
namespace {

constexpr Device kSecondGpu{DeviceType::cuda, 1};

using DeviceFamiliesTest = SimulatedDeviceTest;

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
TEST_F(DeviceFamiliesTest, AttentionIsAsOnTheHost) {
  expect_attention_as_on_host(kSecondGpu);
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

TEST_F(DeviceFamiliesTest, OnlyWhatLooksAtPositionsWaitsForTheDevice) {
  const LocalTensor a = ones({4, 3000}, {DType::f32, kSecondGpu});
  const LocalTensor classes = zeros({4}, {DType::i64, kSecondGpu});
  const CrossEntropy forward = cross_entropy_rows(a, classes);
  simulation_.clear_calls();
  const LocalTensor folded = sum(var(a, {1})) + max(a, 1).values + logsumexp(a, {1});
  const LocalTensor scanned = cumsum(softmax(a, 1), 1);
  const LocalTensor normed = layer_norm_backward(a, a, {.weight = a.select(0, 0)}).weight;
  const LocalTensor sorted = topk(sort(a).values, 5).values;
  const LocalTensor gradient =
      cross_entropy_rows_backward(forward.loss, a, classes, forward.logsumexp);
  for (const std::string& call : simulation_.calls()) {
    EXPECT_EQ(call.find("synchronize"), std::string::npos) << call;
  }
  EXPECT_EQ(sum(sorted).item(), 20);
  simulation_.clear_calls();
  index_select(a, 0, classes);
  const std::vector<std::string> calls = simulation_.calls();
  EXPECT_NE(std::find(calls.begin(), calls.end(), "stream_synchronize"), calls.end());
}

}  // namespace
}  // namespace dtrun::tensors
