// LOCAL_RANK and the GPUs that there are.
#include "rank_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/thrown_error.h"

namespace dtrun::runtime {
namespace {

using collectives::BackendSpec;
using tensors::Device;
using tensors::DeviceType;
using testing::HasSubstr;

Device device(const BackendSpec& backends, int local_rank, int gpus) {
  rendezvous::WorkerEnv env;
  env.rank = 4 + local_rank;
  env.local_rank = local_rank;
  return device_of_rank(backends, env, gpus);
}

TEST(RankDeviceTest, TheLocalRankIsTheGpuWhereCudaTensorsAreServed) {
  EXPECT_EQ(device({.cpu = "cpu", .cuda = ""}, 3, 4), tensors::kCpu);
  EXPECT_EQ(device({.cpu = "", .cuda = "nccl"}, 3, 4), (Device{DeviceType::cuda, 3}));
  EXPECT_EQ(device({.cpu = "cpu", .cuda = "nccl"}, 0, 1), (Device{DeviceType::cuda, 0}));
  EXPECT_EQ(device({.cpu = "", .cuda = "nccl"}, 3, 0), tensors::kCpu);
}

TEST(RankDeviceTest, StagedRanksShareTheGpus) {
  for (int local_rank = 0; local_rank < 4; ++local_rank) {
    EXPECT_EQ(device({.cpu = "", .cuda = "staged"}, local_rank, 1), (Device{DeviceType::cuda, 0}));
    EXPECT_EQ(device({.cpu = "", .cuda = "staged"}, local_rank, 2),
              (Device{DeviceType::cuda, local_rank % 2}));
  }
}

TEST(RankDeviceTest, ALocalRankBeyondTheGpusIsNamedWithTheirNumber) {
  const auto error = testing_support::error_of([] { device({.cpu = "", .cuda = "nccl"}, 2, 2); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), base::ErrorCode::kUnavailable);
  EXPECT_EQ(error->summary(), "rank 6 has LOCAL_RANK 2, and there are 2 GPUs here");
  EXPECT_THAT(error->remedy(), HasSubstr("staged"));
  EXPECT_THAT(testing_support::error_of([] { device({.cpu = "", .cuda = "nccl"}, 1, 1); })->what(),
              HasSubstr("there is one GPU here"));
}

}  // namespace
}  // namespace dtrun::runtime
