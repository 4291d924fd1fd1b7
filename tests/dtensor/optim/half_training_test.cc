// Training in halves: f32 masters in the optimizer, and f16 with a GradScaler on meshes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "dtensor/parallel/small_models.h"
#include "dtensor/refusal.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/checkpoint/checkpoint.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/optim/adam.h"
#include "dtrun/dtensor/optim/grad_scaler.h"
#include "dtrun/dtensor/optim/sgd.h"
#include "dtrun/dtensor/parallel/data_parallel.h"
#include "dtrun/dtensor/parallel/fully_shard.h"
#include "dtrun/dtensor/parallel/zero_redundancy_optimizer.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor::optim {
namespace {

using tensors::RandomKey;

Tensor first_numbers() {
  return randn({6, 4}, RandomKey{.seed = 1}).to(DType::bf16);
}
Tensor half_gradient(int step) {
  return randn({6, 4}, RandomKey{.seed = 2, .stream = static_cast<std::uint64_t>(step)})
      .to(DType::bf16);
}

constexpr AdamWOptions kSmallSteps{.lr = 1e-4, .master_weights = true};

/// What an f32 AdamW makes of the same numbers: its steps are smaller than a bf16's last bit.
Tensor in_single(int steps) {
  const Tensor p = first_numbers().to(DType::f32).requires_grad_();
  AdamW optimizer({p}, kSmallSteps);
  for (int step = 0; step < steps; ++step) {
    p.set_grad(half_gradient(step).to(DType::f32));
    optimizer.step();
  }
  return p.detach();
}

TEST(MasterWeightsTest, HalvesAreWhatSinglesWouldBeOnAnyLayout) {
  const Tensor expected = in_single(40);
  EXPECT_FALSE(equal(expected.to(DType::bf16), first_numbers()));
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"any"});
    for (const Placement& placement : {Replicate(), Shard(0), Shard(1)}) {
      const auto placed = [&](const Tensor& whole) {
        return distribute_tensor(whole, mesh, {placement}).detach();
      };
      const Tensor p = placed(first_numbers()).requires_grad_();
      AdamW optimizer({p}, kSmallSteps);
      for (int step = 0; step < 40; ++step) {
        p.set_grad(placed(half_gradient(step)));
        optimizer.step();
      }
      EXPECT_EQ(p.dtype(), DType::bf16);
      EXPECT_TRUE(equal(p.detach().full_tensor(), expected.to(DType::bf16)));
      const Tensor master = optimizer.state_dict().at("state.0.master");
      EXPECT_EQ(master.placements(), p.placements());
      EXPECT_TRUE(equal(master.full_tensor(), expected));
      EXPECT_EQ(optimizer.state_dict().at("state.0.exp_avg").dtype(), DType::f32);
    }
    // ZeRO-1: each rank keeps the masters of its rows.
    const Tensor p = first_numbers().requires_grad_();
    ZeroRedundancyOptimizer optimizer({p}, mesh, [](const Tensors& parts) {
      return std::make_unique<AdamW>(parts, kSmallSteps);
    });
    for (int step = 0; step < 40; ++step) {
      p.set_grad(half_gradient(step));
      optimizer.step();
    }
    EXPECT_TRUE(equal(p.detach(), expected.to(DType::bf16)));
  });
}

TEST(MasterWeightsTest, AStateThatIsLoadedGoesOnAndWhatOthersWriteIsTakenOver) {
  const auto step_from = [](const Tensor& p, Optimizer& optimizer, int first, int last) {
    for (int step = first; step < last; ++step) {
      p.set_grad(half_gradient(step));
      optimizer.step();
    }
  };
  const Tensor one = first_numbers().requires_grad_();
  AdamW before({one}, kSmallSteps);
  step_from(one, before, 0, 20);
  // The state first, or the numbers first.
  for (const bool numbers_first : {true, false}) {
    const Tensor other = zeros({6, 4}).to(DType::bf16).requires_grad_();
    AdamW after({other}, kSmallSteps);
    const auto load_numbers = [&] {
      const NoGrad no_grad;
      other.copy_(one.detach());
    };
    if (numbers_first) load_numbers();
    after.load_state_dict(before.state_dict());
    if (!numbers_first) load_numbers();
    step_from(other, after, 20, 40);
    EXPECT_TRUE(equal(other.detach(), in_single(40).to(DType::bf16)));
  }
  {
    const NoGrad no_grad;
    one.fill_(3);
  }
  one.set_grad(zeros({6, 4}).to(DType::bf16));
  SGD still({one}, {.lr = 0, .master_weights = true});
  still.step();
  before.step();
  EXPECT_NEAR(before.state_dict().at("state.0.master").to_vector()[5], 3, 1e-3);
}

TEST(MasterWeightsTest, SinglesHaveNoneAndHalvesWithoutThemAreRefused) {
  const Tensor single = ones(3).requires_grad_(), half = ones(3).to(DType::f16).requires_grad_();
  SGD both({single, half}, {.lr = 0.5, .momentum = 0.5, .master_weights = true});
  for (const Tensor& p : {single, half}) p.set_grad(ones(3).to(p.dtype()));
  both.step();
  EXPECT_TRUE(equal(half.detach().to(DType::f32), single.detach()));
  EXPECT_EQ(single.detach().to_vector()[0], 0.5);
  const nn::StateDict state = both.state_dict();
  EXPECT_FALSE(state.contains("state.0.master"));
  EXPECT_TRUE(state.contains("state.1.master"));
  EXPECT_TRUE(state.contains("state.1.momentum_buffer"));
  half.set_grad(ones(3).to(DType::f16));
  SGD without({half});
  expect_refused([&] { without.step(); }, "SGD: parameter 0 of group 0 is float16");
}

/// What a training in f16 went through.
struct HalfRun {
  std::vector<double> losses, scales;
  int left_out = 0;
};

/// @param loss_here of this rank's samples
HalfRun train_in_f16(Reader& model, Optimizer& optimizer, const ProcessGroup& group) {
  GradScaler scaler({.init_scale = std::exp2(24), .growth_interval = 6});
  HalfRun run;
  for (int step = 0; step < 60; ++step) {
    const std::int64_t count = 12 / group.size();
    const Tensor scores = model(made_tokens(12).narrow(0, group.rank() * count, count));
    const Tensor loss =
        cross_entropy(scores.reshape({count * 4, 5}).to(DType::f32),
                      made_targets(12).narrow(0, group.rank() * count * 4, count * 4));
    optimizer.zero_grad();
    scaler.scale(loss).backward();
    std::vector<double> before;
    for (const Tensor& p : optimizer.parameters()) {
      const auto own = Tensor(p.local()).to(DType::f32).to_vector();
      before.insert(before.end(), own.begin(), own.end());
    }
    const double scale = scaler.get_scale();
    const bool stepped = scaler.step(optimizer);
    scaler.update();
    std::vector<double> after;
    for (const Tensor& p : optimizer.parameters()) {
      const auto own = Tensor(p.local()).to(DType::f32).to_vector();
      after.insert(after.end(), own.begin(), own.end());
    }
    EXPECT_EQ(before == after, !stepped) << step;
    EXPECT_TRUE(std::ranges::all_of(after, [](double x) { return std::isfinite(x); })) << step;
    // torch.amp.GradScaler: half after a step that was left out.
    if (!stepped) {
      EXPECT_EQ(scaler.get_scale(), scale / 2);
    }
    run.left_out += stepped ? 0 : 1;
    run.scales.push_back(scaler.get_scale());
    const Tensor mean = loss.detach().to(DType::f64).clone();
    group.all_reduce(mean.local(), collectives::ReduceOp::avg);
    run.losses.push_back(mean.item());
  }
  return run;
}

/// The same in f32, on all samples.
std::vector<double> losses_in_single() {
  const auto model = made_reader();
  model->to(DType::f32);
  AdamW optimizer(model->parameters(), {.lr = 0.01});
  std::vector<double> losses;
  for (int step = 0; step < 60; ++step) {
    optimizer.zero_grad();
    const Tensor loss = loss_of(*model, 0, 12);
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item());
  }
  return losses;
}

void expect_learns_in_f16(const HalfRun& run, const std::vector<double>& in_f32) {
  EXPECT_GT(run.left_out, 2);
  EXPECT_LT(run.left_out, 20);
  // It grows again after six steps, and not before.
  bool has_grown = false;
  for (std::size_t i = 1; i < run.scales.size(); ++i)
    has_grown = has_grown || run.scales[i] > run.scales[i - 1];
  EXPECT_TRUE(has_grown);
  // As many steps behind as were left out.
  const std::size_t taken = run.losses.size() - 1 - static_cast<std::size_t>(run.left_out);
  EXPECT_NEAR(run.losses.back(), in_f32[taken], 0.1 * in_f32[taken]);
  EXPECT_LT(run.losses.back(), 0.7 * run.losses.front());
}

TEST(HalfTrainingTest, F16WithAScalerLearnsAsF32OnAMesh) {
  const std::vector<double> in_f32 = losses_in_single();
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    // Plain f16 parameters, whose masters the optimizer has.
    const auto copies = made_reader();
    copies->to(DType::f16);
    data_parallel(*copies, mesh);
    AdamW of_copies(copies->parameters(), {.lr = 0.01, .master_weights = true});
    const HalfRun dp = train_in_f16(*copies, of_copies, group);
    expect_learns_in_f16(dp, in_f32);
    // f32 parts, gathered as f16.
    const auto parts = made_reader();
    parts->to(DType::f32);
    fully_shard(
        *parts, mesh,
        {.units = {"blocks.*"}, .mixed_precision = {.param = DType::f16, .reduce = DType::f32}});
    AdamW of_parts(parts->parameters(), {.lr = 0.01});
    const HalfRun fsdp = train_in_f16(*parts, of_parts, group);
    expect_learns_in_f16(fsdp, in_f32);
    // Both overflow where f16 does.
    EXPECT_EQ(std::vector<double>(dp.scales.begin(), dp.scales.begin() + 4),
              std::vector<double>(fsdp.scales.begin(), fsdp.scales.begin() + 4));
  });
}

}  // namespace
}  // namespace dtrun::dtensor::optim
