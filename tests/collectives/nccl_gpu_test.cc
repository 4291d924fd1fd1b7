// The backends for CUDA tensors on real GPUs: nccl with one rank per GPU, staged with ranks that
// share one. Without a GPU every test is skipped and says so; scripts/gpu-check takes this program
// to a machine that has one.
#include <gtest/gtest.h>

#include <thread>

#include "dtrun/rendezvous/hash_store.h"
#include "dtrun/tensor/cuda.h"
#include "dtrun/tensor/ops.h"
#include "support/conformance_suite.h"
#include "support/thrown_error.h"

namespace dtrun::conformance {
namespace {

using base::Error;
using collectives::GroupOptions;
using collectives::ProcessGroup;
using tensors::Device;
using tensors::DeviceType;
using tensors::LocalTensor;
namespace cuda = tensors::cuda;

enum class Gpus { one_per_rank, one_for_all };

/// Ranks as threads, each with its GPU current.
std::vector<std::optional<Error>> run_on_gpus(const std::string& backend, Gpus gpus, int size,
                                              const test::RankBody& body) {
  const std::shared_ptr<rendezvous::Store> store = rendezvous::make_hash_store();
  std::vector<std::optional<Error>> thrown(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      thrown[static_cast<std::size_t>(rank)] = testing_support::error_of([&] {
        GroupOptions options = test::group_options(store, rank, size);
        options.backend = backend;
        options.local_rank = gpus == Gpus::one_per_rank ? rank : 0;
        cuda::set_device(options.local_rank);
        body(ProcessGroup::create(std::move(options)));
      });
    });
  for (std::thread& thread : threads) thread.join();
  return thrown;
}

Subject gpu_subject(const std::string& backend, Gpus gpus, std::vector<int> worlds) {
  Subject subject;
  subject.name = backend + " on GPUs";
  subject.worlds = std::move(worlds);
  subject.breadth = Breadth::small;
  subject.device = [gpus](int rank) {
    return Device{DeviceType::cuda, gpus == Gpus::one_per_rank ? rank : 0};
  };
  subject.run = [=](int size, const test::RankBody& body) {
    for (const std::optional<Error>& error : run_on_gpus(backend, gpus, size, body))
      EXPECT_FALSE(error) << error->what();
  };
  return subject;
}

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no GPU here, or no CUDA in this build";
  }

  Subject nccl() const {
    std::vector<int> worlds = {1};
    for (int size = 2; size <= cuda::device_count(); ++size) worlds.push_back(size);
    Subject subject = gpu_subject("nccl", Gpus::one_per_rank, std::move(worlds));
    subject.supports = [](OpKind kind, DType dtype, ReduceOp op) {
      const bool reduces =
          kind == OpKind::all_reduce || kind == OpKind::reduce || kind == OpKind::reduce_scatter;
      if (reduces && dtype == DType::i16) return false;
      const bool bits = op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor;
      return !reduces || !bits || (dtype == DType::boolean && op != ReduceOp::bxor);
    };
    return subject;
  }
  Subject staged() const { return gpu_subject("staged", Gpus::one_for_all, {1, 2, 4}); }
};

TEST_F(GpuTest, NcclReduces) {
  run_part(nccl(), Part::reductions);
}
TEST_F(GpuTest, NcclMovesPieces) {
  run_part(nccl(), Part::pieces);
}
TEST_F(GpuTest, NcclHasSubgroups) {
  run_part(nccl(), Part::groups);
}
TEST_F(GpuTest, NcclRefusesWhatItLacks) {
  run_part(nccl(), Part::refusals);
}

TEST_F(GpuTest, StagedReducesWithFourRanksOnOneGpu) {
  run_part(staged(), Part::reductions);
}
TEST_F(GpuTest, StagedMovesPieces) {
  run_part(staged(), Part::pieces);
}
TEST_F(GpuTest, StagedSendsMessages) {
  run_part(staged(), Part::messages);
}
TEST_F(GpuTest, StagedHasSubgroups) {
  run_part(staged(), Part::groups);
}

TEST_F(GpuTest, NcclOrdersItselfBetweenTheCallersOperations) {
  for (const std::optional<Error>& error :
       run_on_gpus("nccl", Gpus::one_per_rank, 1, [](const ProcessGroup& group) {
         const Device device{DeviceType::cuda, 0};
         LocalTensor total = tensors::zeros({1 << 20}, {DType::f32, device});
         for (int round = 0; round < 50; ++round) {
           const LocalTensor x = tensors::full({1 << 20}, 1, {DType::f32, device});
           group.all_reduce(x);
           total = total + x;
         }
         EXPECT_EQ(tensors::sum(total).item(), 50.0 * (1 << 20));
       }))
    EXPECT_FALSE(error) << error->what();
}

TEST_F(GpuTest, TwoRanksOnOneGpuAreRefusedByNameForNccl) {
  for (const std::optional<Error>& error :
       run_on_gpus("nccl", Gpus::one_for_all, 2, [](const ProcessGroup& group) {
         group.all_reduce(tensors::ones({4}, {DType::f32, {DeviceType::cuda, 0}}));
       })) {
    ASSERT_TRUE(error);
    EXPECT_TRUE(testing_support::contains(error->what(), "ranks 0 and 1 both use"))
        << error->what();
    EXPECT_TRUE(testing_support::contains(error->remedy(), "staged")) << error->what();
  }
}

TEST_F(GpuTest, MessagesGoRoundSeveralGpus) {
  const int size = cuda::device_count();
  if (size < 2) GTEST_SKIP() << "needs two GPUs, and there is one";
  for (const std::optional<Error>& error :
       run_on_gpus("nccl", Gpus::one_per_rank, size, [size](const ProcessGroup& group) {
         const int me = group.rank();
         const Device device{DeviceType::cuda, me};
         // Larger than NCCL's buffers: a send cannot end before its receive has begun.
         const LocalTensor sent = tensors::full({1 << 24}, me, {DType::f32, device});
         const LocalTensor received = tensors::zeros({1 << 24}, {DType::f32, device});
         const collectives::Work send = group.isend(sent, (me + 1) % size);
         const collectives::Work receive = group.irecv(received, (me + size - 1) % size);
         receive.wait();
         send.wait();
         EXPECT_EQ(received[0].item(), (me + size - 1) % size);
         EXPECT_EQ(received[(1 << 24) - 1].item(), (me + size - 1) % size);
       }))
    EXPECT_FALSE(error) << error->what();
}

TEST_F(GpuTest, BatchesGoRoundSeveralGpus) {
  const int size = cuda::device_count();
  if (size < 2) GTEST_SKIP() << "needs two GPUs, and there is one";
  for (const std::optional<Error>& error :
       run_on_gpus("nccl", Gpus::one_per_rank, size, [size](const ProcessGroup& group) {
         using collectives::P2POp;
         const int me = group.rank();
         const Device device{DeviceType::cuda, me};
         group.barrier();
         const LocalTensor sent = tensors::full({1 << 24}, me, {DType::f32, device});
         const LocalTensor received = tensors::zeros({1 << 24}, {DType::f32, device});
         for (const collectives::Work& work :
              group.batch_isend_irecv({{P2POp::Kind::receive, received, (me + size - 1) % size},
                                       {P2POp::Kind::send, sent, (me + 1) % size}}))
           work.wait();
         EXPECT_EQ(received[0].item(), (me + size - 1) % size);
         EXPECT_EQ(received[(1 << 24) - 1].item(), (me + size - 1) % size);
       }))
    EXPECT_FALSE(error) << error->what();
}

}  // namespace
}  // namespace dtrun::conformance
