// CUDA tensors: in full where a device is; else that their absence is told clearly, by a build
// without CUDA and by one that finds no driver.
#include "dtrun/tensor/cuda.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <thread>

#include "cuda/context.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/literal.h"
#include "dtrun/tensor/ops.h"
#include "tensor/all_dtypes.h"
#include "tensor/device_creation.h"
#include "tensor/device_families.h"
#include "tensor/device_map.h"
#include "tensor/device_optimizer.h"
#include "tensor/device_suite.h"
#include "tensor/golden_operations.h"
#include "tensor/simulated_cuda.h"

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
  const LocalTensor remote(Storage::wrap(&element, sizeof element, kGpu, {}), DType::f32, {1}, {1});
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

TEST(CudaAbsenceTest, OnlyAKernelCanBeMissingWhereADeviceIsSimulated) {
  cuda::SimulatedCuda simulation;
  cuda::CudaContext context(cuda::SimulatedCuda::api(), cuda::library_blas());
  const cuda::ContextGuard guard(context);
  if (cuda::is_built()) GTEST_SKIP() << "built with CUDA";
  const LocalTensor remote = ones({2, 2}).to(kGpu);
  EXPECT_EQ(remote.to_vector(), Values(4, 1));
  for (const std::function<void()>& action : std::vector<std::function<void()>>{
           [&] { remote.fill_(1); }, [&] { matmul(remote, remote); }}) {
    try {
      action();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
      EXPECT_EQ(error.why(), "built without CUDA");
    }
  }
}

TEST(CudaAbsenceTest, CublasOpensWithoutADevice) {
  if (!cuda::is_built()) GTEST_SKIP() << "built without CUDA";
  EXPECT_NO_THROW(cuda::library_blas().require());
  EXPECT_STRNE(cuda::library_blas().status_text(1), nullptr);
}

// What follows needs a GPU. scripts/gpu-check runs it where there is one.

class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device here";
  }
  void TearDown() override {
    if (!IsSkipped()) cuda::synchronize(0);  // a kernel's fault belongs to its test
  }
};

TEST_F(CudaTest, GoldenOperationsGivePyTorchsResult) {
  expect_golden_operations(kGpu);
}
TEST_F(CudaTest, CreationIsAsOnTheHost) {
  expect_creation_as_on_host(kGpu);
}
TEST_F(CudaTest, ReductionsAreAsOnTheHost) {
  expect_reductions_as_on_host(kGpu);
}
TEST_F(CudaTest, ScansAreAsOnTheHost) {
  expect_scans_as_on_host(kGpu);
}
TEST_F(CudaTest, RowsAreAsOnTheHost) {
  expect_rows_as_on_host(kGpu);
}
TEST_F(CudaTest, ClassRowsAreAsOnTheHost) {
  expect_class_rows_as_on_host(kGpu);
}
TEST_F(CudaTest, ConvolutionsAreAsOnTheHost) {
  expect_convolutions_as_on_host(kGpu);
}
TEST_F(CudaTest, AttentionIsAsOnTheHost) {
  expect_attention_as_on_host(kGpu);
}
TEST_F(CudaTest, PicksAreAsOnTheHost) {
  expect_picks_as_on_host(kGpu);
}
TEST_F(CudaTest, PlacementsHaveTheBitsOfTheHosts) {
  expect_placements_as_on_host(kGpu);
}
TEST_F(CudaTest, RearrangementsAreAsOnTheHost) {
  expect_rearrangements_as_on_host(kGpu);
}
TEST_F(CudaTest, SortingIsAsOnTheHost) {
  expect_sorting_as_on_host(kGpu);
}
TEST_F(CudaTest, CopiesAreAsOnTheHost) {
  expect_copies_as_on_host(kGpu);
}
TEST_F(CudaTest, ConversionsAreAsOnTheHost) {
  expect_conversions_as_on_host(kGpu);
}
TEST_F(CudaTest, PointwiseOperationsAreAsOnTheHost) {
  expect_pointwise_as_on_host(kGpu);
}
TEST_F(CudaTest, EveryPointwiseOperatorAndDTypeIsAsOnTheHost) {
  expect_map_as_on_host(kGpu);
}
TEST_F(CudaTest, MixedDTypesAndNumbersAreAsOnTheHost) {
  expect_mixed_map_as_on_host(kGpu);
}
TEST_F(CudaTest, InPlaceIsAsOnTheHost) {
  expect_map_in_place_as_on_host(kGpu);
}
TEST_F(CudaTest, PointwiseErrorsAreAsOnTheHost) {
  expect_map_errors_as_on_host(kGpu);
}
TEST_F(CudaTest, RandomNumbersAreTheHosts) {
  expect_random_as_on_host(kGpu);
}
TEST_F(CudaTest, LinesAndTrianglesAreTheHosts) {
  expect_lines_and_triangles_as_on_host(kGpu);
}
TEST_F(CudaTest, OptimizerStepsAreTheHosts) {
  expect_steps_as_on_host(kGpu);
}
TEST_F(CudaTest, SumsHaveTheBitsOfTheHosts) {
  expect_sums_as_on_host(kGpu);
}
TEST_F(CudaTest, ProductsAreAsOnTheHost) {
  expect_products_as_on_host(kGpu);
}
TEST_F(CudaTest, CombinationsAreAsOnTheHost) {
  expect_combinations_as_on_host(kGpu);
}
TEST_F(CudaTest, JoiningIsAsOnTheHost) {
  expect_joining_as_on_host(kGpu);
}
TEST_F(CudaTest, StreamsAreInOrder) {
  expect_ordered_streams(kGpu);
}

TEST_F(CudaTest, EveryGoldenTensorPrintsAsPyTorchPrintsIt) {
  int wrong = 0;
  for (const GoldenCase& golden : read_golden_file("tensor_prints")) {
    if (golden.at("device").as_string() != "cuda:0") continue;
    const std::string got = golden_tensor(golden).to(kGpu).to_string();
    EXPECT_EQ(got, std::string(golden.at("device_text").as_string()));
    wrong += got != std::string(golden.at("device_text").as_string());
    ASSERT_LT(wrong, 5) << "and more";
  }
}

TEST_F(CudaTest, LargeProductsAreAsExactAsTheirDtype) {
  const LocalTensor a = randn({300, 500}, {1, 1}, {.dtype = DType::f64});
  const LocalTensor b = randn({500, 200}, {1, 2}, {.dtype = DType::f64});
  for (const auto& [dtype, tolerance] : std::vector<std::pair<DType, double>>{
           {DType::f64, 1e-12}, {DType::f32, 1e-4}, {DType::f16, 0.1}, {DType::bf16, 0.6}}) {
    const Values exact = matmul(a.to(dtype).to(DType::f64), b.to(dtype).to(DType::f64)).to_vector();
    const Values got = matmul(a.to(dtype).to(kGpu), b.to(dtype).to(kGpu)).to_vector();
    double worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i)
      worst = std::max(worst, std::abs(got[i] - exact[i]));
    EXPECT_LT(worst, tolerance) << dtype_name(dtype);
  }
}

TEST_F(CudaTest, MoreThan31BitsOfElementsAreCounted) {
  const std::int64_t count = (std::int64_t{1} << 31) + 5;
  const LocalTensor bytes = ones({count}, {DType::u8, kGpu});
  EXPECT_EQ(sum(bytes.slice(0, count - 100, count)).item(), 100);
  const LocalTensor doubled = bytes + bytes;
  EXPECT_EQ(doubled[count - 1].item(), 2);
  EXPECT_EQ((doubled.slice(0, 0, count, 2) + bytes.slice(0, 0, count, 2))[count / 2].item(), 3);
}

TEST_F(CudaTest, ThreadsWorkOnStreamsOfTheirOwn) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([t, &wrong] {
      const cuda::StreamGuard guard(cuda::Stream::from_pool(0));
      for (int round = 0; round < 50; ++round) {
        const LocalTensor a = full({1000 + t * 77}, t, {DType::f32, kGpu});
        const LocalTensor b = a * 2.0 + 1.0;
        wrong += sum(b).item() != (2.0 * t + 1) * (1000 + t * 77);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(CudaTest, PinnedCopiesAndTimingEventsWork) {
  const LocalTensor pinned = cuda::empty_pinned({1 << 20}, DType::f32);
  pinned.fill_(3);
  const LocalTensor remote = empty({1 << 20}, {DType::f32, kGpu});
  const cuda::DeviceGuard guard(0);
  const cuda::Event start(cuda::EventTiming::on);
  const cuda::Event end(cuda::EventTiming::on);
  const cuda::Stream stream = cuda::current_stream(0);
  stream.record(start);
  cuda::copy_async(remote, pinned);
  stream.record(end);
  end.synchronize();
  EXPECT_TRUE(start.is_done());
  EXPECT_GT(end.milliseconds_since(start), 0);
  EXPECT_EQ(sum(remote).item(), 3.0 * (1 << 20));
}

TEST_F(CudaTest, FreedMemoryIsReusedAndGivenBack) {
  cuda::empty_cache();
  const std::size_t before = cuda::memory_stats(0).allocated;
  const void* first = empty({1000}, {DType::f32, kGpu}).data();
  const LocalTensor second = empty({1000}, {DType::f32, kGpu});
  EXPECT_EQ(second.data(), first);
  EXPECT_GT(cuda::memory_stats(0).allocated, before);
  EXPECT_GE(cuda::memory_stats(0).reserved, cuda::memory_stats(0).allocated);
}

TEST_F(CudaTest, TensorsGoFromDeviceToDevice) {
  if (cuda::device_count() < 2) GTEST_SKIP() << "one CUDA device here; this needs two";
  const LocalTensor a = arange(1000, {DType::f32, kGpu}) + 1.0;
  const LocalTensor b = a.to(Device{DeviceType::cuda, 1}) * 2.0;
  EXPECT_EQ(sum(b).item(), 2 * 500500.0);
  EXPECT_TRUE(equal(b.to(kGpu), a * 2.0));
}

TEST_F(CudaTest, TensorsAreFilledCopiedAndPrinted) {
  for (const DType dtype : kAllDTypes) {
    const LocalTensor remote = ones({2, 3}, {dtype, kGpu});
    EXPECT_EQ(remote.to_vector(), Values(6, 1));
    remote.select(1, 1).fill_(0);
    EXPECT_EQ(remote.to(kCpu).to_vector(), (Values{1, 0, 1, 1, 0, 1}));
  }
  EXPECT_EQ(tensor({1, 2}).to(kGpu).to_string(), "tensor([1, 2], device='cuda:0')");
  EXPECT_EQ(zeros({0}, {DType::f32, kGpu}).clone().numel(), 0);
}

TEST_F(CudaTest, StridedCopiesGoAllWays) {
  const LocalTensor host = arange(12).view({3, 4});
  const LocalTensor remote = host.to(kGpu);
  EXPECT_TRUE(equal(remote.transpose(0, 1).to(kCpu), host.transpose(0, 1)));
  EXPECT_TRUE(equal(host.transpose(0, 1).to(kGpu).to(kCpu), host.transpose(0, 1)));
  remote.transpose(0, 1).slice(0, 1, 3).copy_(zeros({2, 3}, {DType::i64}));
  EXPECT_EQ(remote.to_vector(), (Values{0, 0, 0, 3, 4, 0, 0, 7, 8, 0, 0, 11}));
  const LocalTensor target = zeros({4, 3});
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
