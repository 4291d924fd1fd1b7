// The nccl backend, as far as this machine goes: without a GPU, or in a build without CUDA, a clear
// refusal; with one, a group of one rank.
#include <gtest/gtest.h>

#include "dtrun/collectives/process_group.h"
#include "dtrun/rendezvous/hash_store.h"
#include "dtrun/tensor/cuda.h"
#include "dtrun/tensor/ops.h"
#include "nccl/nccl_api.h"
#include "support/rank_threads.h"
#include "support/thrown_error.h"

namespace dtrun::collectives {
namespace {

using base::Error;
using base::ErrorCode;
using tensors::LocalTensor;
using testing_support::contains;
using testing_support::error_of;

GroupOptions nccl_options(int local_rank) {
  GroupOptions options = test::group_options(rendezvous::make_hash_store(), 0, 1);
  options.backend = "nccl";
  options.local_rank = local_rank;
  return options;
}

TEST(NcclTest, ARankWithoutAGpuIsRefusedWithTheRemedy) {
  if (tensors::cuda::device_count() > 0) GTEST_SKIP() << "a GPU is here";
  const std::optional<Error> error = error_of([&] { ProcessGroup::create(nccl_options(0)); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kUnavailable);
  EXPECT_TRUE(contains(error->what(),
                       tensors::cuda::is_built() ? "needs one GPU per rank" : "is not built in"))
      << error->what();
  EXPECT_TRUE(contains(error->remedy(), "cpu")) << error->remedy();
}

TEST(NcclTest, TheLibraryHasAllThatIsCalled) {
  if (!tensors::cuda::is_built()) GTEST_SKIP() << "built without CUDA";
  EXPECT_GE(nccl::real_nccl_api()->version(), 21800);
}

TEST(NcclTest, AGroupOfOneReducesOnItsGpu) {
  if (tensors::cuda::device_count() == 0) GTEST_SKIP() << "no GPU here, or no CUDA in this build";
  const ProcessGroup group = ProcessGroup::create(nccl_options(0));
  EXPECT_EQ(group.backend_name(), "nccl");
  const tensors::Device device{tensors::DeviceType::cuda, 0};
  const LocalTensor tensor = tensors::full({3}, 2).to(device);
  group.all_reduce(tensor);
  group.broadcast(tensor, 0, {.async = true}).wait();
  group.reduce(tensor, 0, ReduceOp::avg);
  EXPECT_EQ(tensor.to(tensors::kCpu).to_vector(), std::vector<double>(3, 2));
  group.barrier();
  const std::optional<Error> wrong_device = error_of([&] { group.all_reduce(tensors::ones({1})); });
  ASSERT_TRUE(wrong_device.has_value());
  EXPECT_TRUE(contains(wrong_device->what(), "is on cpu")) << wrong_device->what();
}

}  // namespace
}  // namespace dtrun::collectives
