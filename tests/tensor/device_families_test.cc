// Reductions, scans, rows, picks and sorts of CUDA tensors, on a simulated device whose kernels run
// on the host.
#include "tensor/device_families.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/attention.h"
#include "dtrun/tensor/ops/index.h"
#include "tensor/device_comparison.h"
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

TEST(SmallDeviceTest, AttentionHoldsNoWeightForEachPair) {
  if (!cuda::is_built()) GTEST_SKIP() << "built without CUDA: there are no kernels";
  // The weights of all pairs alone would be 64 MiB.
  constexpr std::int64_t kPositions = 4096;
  constexpr Device kGpu{DeviceType::cuda, 0};
  cuda::SimulatedCuda simulation({.devices = 1, .bytes = std::size_t{60} << 20});
  cuda::CudaContext context(cuda::SimulatedCuda::api(), cuda::SimulatedCuda::blas());
  const cuda::ContextGuard guard(context);
  const LocalTensor host = randn({kPositions, 8}, {1}), x = host.to(kGpu);
  const Attended attended = attention(x, x, x, {.scale = 0.3});
  expect_close(attended.output, attention(host, host, host, {.scale = 0.3}).output, kGpu, "output");
  const AttentionGradients back = attention_backward(x, x, x, x, attended, {.scale = 0.3});
  EXPECT_GT(sum(abs(back.key)).item(), 0);
}

}  // namespace
}  // namespace dtrun::tensors
