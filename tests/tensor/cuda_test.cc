// CUDA tensors: in full where a device is; else that their absence is told clearly, by a build
// without CUDA and by one that finds no driver.
#include "dtrun/tensor/cuda.h"

#include <gtest/gtest.h>

#include <functional>

#include "dtrun/base/error.h"
#include "dtrun/tensor/literal.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::tensors {
namespace {

using base::Error;
using base::ErrorCode;
using Values = std::vector<double>;
constexpr Device kGpu{DeviceType::cuda, 0};

TEST(CudaAbsenceTest, AllocatingOnADeviceThatIsNotHereIsUnavailable) {
  // This index is absent on every machine.
  const Device missing{DeviceType::cuda, 1000};
  try {
    zeros({2}, {DType::f32, missing});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_FALSE(error.remedy().empty());
    if (!cuda::is_built()) {
      EXPECT_EQ(error.why(), "built without CUDA");
    } else {
      // In the driver's words: (cudaErrorNoDevice), (cudaErrorInsufficientDriver), ...
      EXPECT_NE(error.why().find("(cudaError"), std::string::npos) << error.why();
    }
  }
  EXPECT_THROW(ones({2}).to(missing), Error);
  EXPECT_THROW(randn({2}, {}, {DType::f32, missing}), Error);
}

TEST(CudaAbsenceTest, WithoutCudaThereAreNoDevices) {
  if (cuda::is_built()) GTEST_SKIP() << "built with CUDA";
  EXPECT_EQ(cuda::device_count(), 0);
}

TEST(CudaAbsenceTest, WhatNeedsTheElementsOfAnAbsentDeviceIsUnavailable) {
  if (cuda::device_count() > 0) GTEST_SKIP() << "a device is here, and would read made-up memory";
  float element = 0;
  const Tensor remote(Storage::wrap(&element, sizeof element, kGpu, {}), DType::f32, {1}, {1});
  for (const std::function<void()>& action : std::vector<std::function<void()>>{
           [&] { remote.fill_(1); }, [&] { remote.clone(); }, [&] { remote.to(kCpu); },
           [&] { ones({1}).copy_(remote); }, [&] { remote.copy_(ones({1})); },
           [&] { remote.to_string(); }, [&] { remote.item(); }}) {
    try {
      action();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
    }
  }
}

class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device here";
  }
};

TEST_F(CudaTest, TensorsAreFilledCopiedAndPrinted) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32,
                            DType::u8, DType::boolean}) {
    const Tensor remote = ones({2, 3}, {dtype, kGpu});
    EXPECT_EQ(remote.to_vector(), Values(6, 1));
    remote.select(1, 1).fill_(0);
    EXPECT_EQ(remote.to(kCpu).to_vector(), (Values{1, 0, 1, 1, 0, 1}));
  }
  EXPECT_EQ(tensor({1, 2}).to(kGpu).to_string(), "tensor([1, 2], device='cuda:0')");
  EXPECT_EQ(zeros({0}, {DType::f32, kGpu}).clone().numel(), 0);
}

TEST_F(CudaTest, StridedCopiesGoAllWays) {
  const Tensor host = arange(12).view({3, 4});
  const Tensor remote = host.to(kGpu);
  EXPECT_TRUE(equal(remote.transpose(0, 1).to(kCpu), host.transpose(0, 1)));
  EXPECT_TRUE(equal(host.transpose(0, 1).to(kGpu).to(kCpu), host.transpose(0, 1)));
  remote.transpose(0, 1).slice(0, 1, 3).copy_(zeros({2, 3}, {DType::i64}));
  EXPECT_EQ(remote.to_vector(), (Values{0, 0, 0, 3, 4, 0, 0, 7, 8, 0, 0, 11}));
  const Tensor target = zeros({4, 3});
  target.transpose(0, 1).copy_(remote);
  EXPECT_TRUE(equal(target.transpose(0, 1), remote.to(kCpu)));
  remote.slice(1, 0, 3).copy_(remote.slice(1, 1, 4));
  EXPECT_EQ(remote[0].to_vector(), (Values{0, 0, 3, 3}));
}

TEST_F(CudaTest, MemoryThatIsNotThereIsAnError) {
  try {
    empty({std::int64_t{1} << 50}, {DType::f32, kGpu});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kSystem);
  }
}

}  // namespace
}  // namespace dtrun::tensors
