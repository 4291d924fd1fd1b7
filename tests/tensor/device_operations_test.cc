// Every operation of CUDA tensors, on a simulated device whose kernels run on the host.
#include <gtest/gtest.h>

#include <functional>

#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "tensor/device_suite.h"
#include "tensor/golden_operations.h"
#include "tensor/simulated_device_test.h"

namespace dtrun::tensors {
namespace {

constexpr Device kGpu{DeviceType::cuda, 1};

using DeviceOperationsTest = SimulatedDeviceTest;

TEST_F(DeviceOperationsTest, GoldenOperationsGivePyTorchsResult) {
  expect_golden_operations(kGpu);
}
TEST_F(DeviceOperationsTest, CreationIsAsOnTheHost) {
  expect_creation_as_on_host(kGpu);
}
TEST_F(DeviceOperationsTest, CopiesAreAsOnTheHost) {
  expect_copies_as_on_host(kGpu);
}
TEST_F(DeviceOperationsTest, ConversionsAreAsOnTheHost) {
  expect_conversions_as_on_host(kGpu);
}
TEST_F(DeviceOperationsTest, PointwiseOperationsAreAsOnTheHost) {
  expect_pointwise_as_on_host(kGpu);
}
TEST_F(DeviceOperationsTest, SumsHaveTheBitsOfTheHosts) {
  expect_sums_as_on_host(kGpu);
}
TEST_F(DeviceOperationsTest, ProductsAreAsOnTheHost) {
  expect_products_as_on_host(kGpu);
}
TEST_F(DeviceOperationsTest, CombinationsAreAsOnTheHost) {
  expect_combinations_as_on_host(kGpu);
}
TEST_F(DeviceOperationsTest, JoiningIsAsOnTheHost) {
  expect_joining_as_on_host(kGpu);
}
TEST_F(DeviceOperationsTest, StreamsAreInOrder) {
  expect_ordered_streams(kGpu);
}

TEST_F(DeviceOperationsTest, NothingIsLeftTakenAndTheDeviceStaysAsItWas) {
  expect_joining_as_on_host(kGpu);
  EXPECT_EQ(cuda::memory_stats(1).allocated, 0u);
  EXPECT_EQ(cuda::current_device(), 0);
  EXPECT_GT(simulation_.bytes_in_use(1), 0u);
  cuda::empty_cache();
  EXPECT_EQ(simulation_.bytes_in_use(1), 0u);
}

TEST_F(DeviceOperationsTest, TensorsPrintWithTheirDevice) {
  EXPECT_EQ(arange(2, {DType::i64, kGpu}).to_string(), "tensor([0, 1], device='cuda:1')");
}

TEST_F(DeviceOperationsTest, TensorsGoFromDeviceToDevice) {
  const LocalTensor a = arange(5, {DType::f32, kGpu});
  const LocalTensor b = (a + 1.0).to(Device{DeviceType::cuda, 0});
  EXPECT_EQ((b * 2.0).to_vector(), (std::vector<double>{2, 4, 6, 8, 10}));
  const LocalTensor turned = a.expand({2, 5}).transpose(0, 1);
  EXPECT_EQ(turned.to(Device{DeviceType::cuda, 0}).to_vector(), turned.to_vector());
}

TEST_F(DeviceOperationsTest, OperationsReturnBeforeTheDeviceHasRunThem) {
  const LocalTensor a = ones({8}, {DType::f32, kGpu});
  simulation_.clear_calls();
  const LocalTensor b = matmul((a + a).view({2, 4}), a.view({4, 2}));
  for (const std::string& call : simulation_.calls()) {
    EXPECT_EQ(call.find("synchronize"), std::string::npos) << call;
  }
  EXPECT_EQ(b.to_vector(), (std::vector<double>{8, 8, 8, 8}));
}

TEST_F(DeviceOperationsTest, CublasFailuresSayWhy) {
  const LocalTensor a = ones({2, 2}, {DType::f32, kGpu});
  for (const char* call : {"blas_create", "blas_multiply"}) {
    simulation_.fail_next(call, cuda::Status::out_of_memory);
    try {
      matmul(a, a);
      ADD_FAILURE() << "no error";
    } catch (const base::Error& error) {
      EXPECT_EQ(error.code(), base::ErrorCode::kSystem);
      EXPECT_EQ(error.why(), "a simulated failure of cuBLAS; a simulated failure");
    }
  }
  EXPECT_EQ(sum(matmul(a, a)).item(), 8);
}

}  // namespace
}  // namespace dtrun::tensors
