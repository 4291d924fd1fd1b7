// The losses of an MLP, step by step: those of one rank, however ranks train it together.
#include <gtest/gtest.h>

#include <functional>

#include "dtrun/dtensor/nn/activations.h"
#include "dtrun/dtensor/nn/containers.h"
#include "dtrun/dtensor/nn/linear.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/random.h"
#include "dtrun/dtensor/ops/rows.h"
#include "dtrun/dtensor/optim/adam.h"
#include "dtrun/dtensor/parallel/data_parallel.h"
#include "dtrun/dtensor/parallel/fully_shard.h"
#include "dtrun/dtensor/parallel/parallelize.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

using collectives::ProcessGroup;

constexpr int kSteps = 10;
constexpr std::int64_t kSamples = 24, kInputs = 6, kOutputs = 3;
constexpr double kRelative = 1e-6;

/// Layers of 10 and 14 features, which four ranks cut into uneven parts.
nn::Sequential made_mlp() {
  manual_seed(31);
  nn::Sequential mlp(nn::Linear(kInputs, 10), nn::GELU(), nn::Linear(10, 14), nn::Tanh(),
                     nn::Linear(14, kOutputs));
  mlp->to(tensors::DType::f64);
  return mlp;
}

/// The losses of `count` samples from `first` on, one for each step.
std::vector<double> losses_of(const nn::Sequential& mlp, std::int64_t first, std::int64_t count) {
  constexpr tensors::TensorOptions kDoubles{.dtype = tensors::DType::f64};
  const Tensor samples = randn({kSamples, kInputs}, {.seed = 1}, kDoubles);
  const Tensor targets = tanh(matmul(samples, randn({kInputs, kOutputs}, {.seed = 2}, kDoubles)));
  const Tensor x = samples.narrow(0, first, count), y = targets.narrow(0, first, count);
  optim::Adam optimizer(mlp->parameters(), {.lr = 0.02});
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const Tensor loss = mse_loss(mlp(x), y);
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item());
  }
  return losses;
}

const std::vector<double>& losses_of_one_rank() {
  static const std::vector<double> kLosses = losses_of(made_mlp(), 0, kSamples);
  return kLosses;
}

/// How ranks train a model together.
struct Way {
  std::vector<int> shape;
  std::vector<std::string> axes;
  std::function<void(nn::Module& mlp, const DeviceMesh& mesh)> lay_out;
  /// Each rank along these axes has its part of the samples.
  std::vector<std::string> samples_along;
};

void expect_losses_of_one_rank(const Way& way) {
  int ranks = 1;
  for (const int size : way.shape) ranks *= size;
  test::run_ranks(ranks, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, way.shape, way.axes);
    const nn::Sequential mlp = made_mlp();
    way.lay_out(*mlp, mesh);
    int parts = 1, part = 0;
    for (const std::string& axis : way.samples_along) {
      parts *= mesh.size(axis);
      part = part * mesh.size(axis) + mesh.local_rank(axis);
    }
    const std::int64_t count = kSamples / parts;
    std::vector<double> losses = losses_of(mlp, part * count, count);
    // The mean over all ranks: those that have the same samples are equally many for each part.
    tensors::LocalTensor means = tensors::tensor_from(losses, {kSteps}, tensors::DType::f64);
    group.all_reduce(means, ReduceOp::avg);
    losses = means.to_vector();
    for (std::size_t step = 0; step < losses.size(); ++step) {
      const double expected = losses_of_one_rank()[step];
      EXPECT_NEAR(losses[step], expected, kRelative * expected) << "step " << step;
    }
  });
}

void cut_columns_and_rows(nn::Module& mlp, const DeviceMesh& mesh) {
  parallelize(mlp, mesh,
              {{"0", Colwise()}, {"2", Rowwise()}, {"4", Colwise({.output = Replicate()})}});
}

TEST(LossCurvesTest, OneRankLearns) {
  const std::vector<double>& losses = losses_of_one_rank();
  ASSERT_EQ(losses.size(), static_cast<std::size_t>(kSteps));
  for (std::size_t step = 1; step < losses.size(); ++step)
    EXPECT_LT(losses[step], losses[step - 1] * 0.99);
}

TEST(LossCurvesTest, DataParallelOnFourRanks) {
  expect_losses_of_one_rank(
      {{4},
       {"dp"},
       [](nn::Module& mlp, const DeviceMesh& mesh) { data_parallel(mlp, mesh); },
       {"dp"}});
}

TEST(LossCurvesTest, TensorParallelOnFourRanks) {
  expect_losses_of_one_rank({{4}, {"tp"}, cut_columns_and_rows, {}});
}

TEST(LossCurvesTest, FullyShardedOnFourRanks) {
  expect_losses_of_one_rank(
      {{4},
       {"fsdp"},
       [](nn::Module& mlp, const DeviceMesh& mesh) { fully_shard(mlp, mesh); },
       {"fsdp"}});
}

TEST(LossCurvesTest, DataParallelTimesTensorParallel) {
  const auto lay_out = [](nn::Module& mlp, const DeviceMesh& mesh) {
    cut_columns_and_rows(mlp, mesh["tp"]);
    data_parallel(mlp, mesh["dp"]);
  };
  expect_losses_of_one_rank({{2, 2}, {"dp", "tp"}, lay_out, {"dp"}});
}

TEST(LossCurvesTest, FullyShardedWithinReplicas) {
  const auto lay_out = [](nn::Module& mlp, const DeviceMesh& mesh) { fully_shard(mlp, mesh); };
  expect_losses_of_one_rank({{2, 2}, {"replicate", "shard"}, lay_out, {"replicate", "shard"}});
}

TEST(LossCurvesTest, DataParallelTimesFullyShardedTimesTensorParallel) {
  const auto lay_out = [](nn::Module& mlp, const DeviceMesh& mesh) {
    cut_columns_and_rows(mlp, mesh["tp"]);
    fully_shard(mlp, mesh["fsdp"]);
    data_parallel(mlp, mesh["dp"]);
  };
  expect_losses_of_one_rank({{2, 2, 2}, {"dp", "fsdp", "tp"}, lay_out, {"dp", "fsdp"}});
}

}  // namespace
}  // namespace dtrun::dtensor
