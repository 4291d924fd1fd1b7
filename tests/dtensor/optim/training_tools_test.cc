// Muon, GradScaler and ExponentialMovingAverage: PyTorch's numbers, on one rank and on meshes, and
// what they refuse.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "dtensor/refusal.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/nn/linear.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/random.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/dtensor/optim/grad_scaler.h"
#include "dtrun/dtensor/optim/moving_average.h"
#include "dtrun/dtensor/optim/muon.h"
#include "dtrun/dtensor/optim/sgd.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor::optim {
namespace {

using collectives::ProcessGroup;

/// 1/4, 2/4, ...
Tensor quarters(const Shape& shape) {
  return (arange(tensors::numel(shape)).to(DType::f64) + 1.0).reshape(shape) / 4;
}

/// Two steps on a loss of the matrix alone.
std::vector<double> muon_result(const Tensor& p, const MuonOptions& options) {
  p.requires_grad_();
  Muon optimizer({p}, options);
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    const Tensor cubes = sum(pow(p, 3) / 3);
    (cubes + sum(p.select(0, 0)) * step).backward();
    optimizer.step();
  }
  return p.detach().to_vector();
}

TEST(MuonTest, MatricesBecomeWhatPyTorchMakesOfThem) {
  // torch.optim.Muon of PyTorch 2.15, with float64 in place of bfloat16 in its iteration.
  const std::vector<double> wide{0.225529045934, 0.479024632007, 0.691918543819,
                                 0.968176817572, 1.16214756632,  1.35135779631};
  const std::vector<double> tall{0.254005956717, 0.476225995675, 0.775203800613, 0.937053628416,
                                 1.23462722099,  1.43101426359,  1.66292355875,  1.93984840184};
  const MuonOptions first{.lr = 0.1, .momentum = 0.9};
  const MuonOptions second{
      .lr = 0.1, .momentum = 0.9, .nesterov = false, .rate = MuonRate::match_rms_adamw};
  const auto expect = [](const std::vector<double>& found, const std::vector<double>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-9);
  };
  expect(muon_result(quarters({2, 3}), first), wide);
  expect(muon_result(quarters({4, 2}), second), tall);
  for (const int ranks : {2, 3}) {
    test::run_ranks(ranks, [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, {ranks}, {"fsdp"});
      for (const int dim : {0, 1}) {
        const auto cut = [&](const Shape& shape) {
          return distribute_tensor(quarters(shape), mesh, {Shard(dim)});
        };
        expect(muon_result(cut({2, 3}), first), wide);
        expect(muon_result(cut({4, 2}), second), tall);
      }
    });
  }
}

TEST(MuonTest, RowsThatTwoAxesCutMayBeCutInEitherOrder) {
  const MuonOptions options{.lr = 0.1, .momentum = 0.9};
  const std::vector<double> expected = muon_result(quarters({7, 3}), options);
  test::run_ranks(4, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2}, {"fsdp", "tp"});
    // As fully_shard() does of what parallelize() has cut: the second axis first.
    for (const ShardOrder& order : {ShardOrder{{0, {0, 1}}}, ShardOrder{{0, {1, 0}}}}) {
      const Tensor cut = distribute_tensor(quarters({7, 3}), mesh, {Shard(0), Shard(0)})
                             .redistribute({Shard(0), Shard(0)}, order);
      const std::vector<double> found = muon_result(cut.detach(), options);
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-9);
    }
  });
}

TEST(MuonTest, WhatIsNoMatrixIsRefused) {
  const Tensor p = ones(3).requires_grad_(), q = ones(2, 2).requires_grad_();
  expect_refused([&] { Muon({p}); }, {"shape [3] is no matrix", "AdamW"});
  expect_refused([&] { Muon({q}, {.momentum = 1}); }, "momentum is in [0, 1)");
}

TEST(GradScalerTest, StepsAreScaledLeftOutAndGrow) {
  const Tensor p = full({2}, 1).requires_grad_();
  SGD optimizer({p}, {.lr = 1});
  GradScaler scaler({.init_scale = 8, .growth_interval = 2});
  const auto step = [&](double slope) {
    optimizer.zero_grad();
    scaler.scale(sum(p) * slope).backward();
    const bool stepped = scaler.step(optimizer);
    scaler.update();
    return stepped;
  };
  EXPECT_TRUE(step(0.25));
  EXPECT_EQ(p.detach().to_vector(), (std::vector<double>{0.75, 0.75}));
  EXPECT_EQ(scaler.get_scale(), 8);
  EXPECT_TRUE(step(0.25));
  EXPECT_EQ(scaler.get_scale(), 16);
  EXPECT_FALSE(step(std::numeric_limits<double>::infinity()));
  EXPECT_FALSE(step(std::nan("")));
  EXPECT_EQ(p.detach().to_vector(), (std::vector<double>{0.5, 0.5}));
  EXPECT_EQ(scaler.get_scale(), 4);
  EXPECT_TRUE(step(0.5));
  GradScaler other;
  other.load_state_dict(scaler.state_dict());
  EXPECT_EQ(other.get_scale(), 4);
  EXPECT_TRUE(step(0));
  EXPECT_EQ(scaler.get_scale(), 8);
}

TEST(GradScalerTest, OneRanksInfinityStopsAllOfThem) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"any"});
    const double own = group.rank() == 1 ? std::numeric_limits<double>::infinity() : 1;
    const Tensor cut = distribute_tensor(ones(4), mesh, {Shard(0)}).requires_grad_();
    SGD optimizer({cut});
    cut.set_grad(Tensor::from_local(full({2}, own), mesh, {Shard(0)}));
    GradScaler scaler;
    EXPECT_FALSE(scaler.step(optimizer));
    // A pipeline's stages have plain parameters of their own.
    const Tensor plain = ones(1).requires_grad_();
    SGD of_stage({plain});
    plain.set_grad(full({1}, own));
    GradScaler of_stages({.stages = mesh});
    EXPECT_FALSE(of_stages.step(of_stage));
  });
}

TEST(GradScalerTest, OneRanksNanStopsAllOfThem) {
  for (const int ranks : {2, 3, 4}) {
    for (int bad = 0; bad < ranks; ++bad) {
      for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
        test::run_ranks(ranks, [&](const ProcessGroup& group) {
          const DeviceMesh mesh(group, {ranks}, {"fsdp"});
          const auto of = [&](double number) { return full({1}, number).to(dtype); };
          const Tensor cut = Tensor::from_local(of(1), mesh, {Shard(0)}).detach().requires_grad_();
          cut.set_grad(
              Tensor::from_local(of(group.rank() == bad ? std::nan("") : 1), mesh, {Shard(0)}));
          SGD optimizer({cut});
          EXPECT_FALSE(GradScaler().step(optimizer)) << ranks << " " << bad;
        });
      }
    }
  }
}

TEST(GradScalerTest, F16GradientsAreDividedWhereTheyAreF32) {
  const Tensor p = ones(2).to(DType::f16).requires_grad_();
  p.set_grad(full({2}, std::exp2(-10)).to(DType::f16));
  SGD optimizer({p}, {.lr = std::exp2(20), .master_weights = true});
  GradScaler scaler({.init_scale = std::exp2(16)});
  expect_refused([&] { scaler.unscale_(optimizer); }, "unscale_() of f16 gradients");
  // 2^-26 is less than f16 has.
  EXPECT_TRUE(scaler.step(optimizer));
  EXPECT_EQ(p.to_vector()[0], 1 - std::exp2(-6));
}

TEST(GradScalerTest, CallsInAnotherOrderAreRefused) {
  const Tensor p = ones(1).requires_grad_();
  SGD optimizer({p});
  GradScaler scaler;
  expect_refused([&] { scaler.update(); }, "update() without a step");
  scaler.unscale_(optimizer);
  expect_refused([&] { scaler.unscale_(optimizer); }, "a second time");
  p.set_grad(ones(1));
  EXPECT_TRUE(scaler.step(optimizer));
  // It would step by gradients that were used already.
  expect_refused([&] { scaler.step(optimizer); }, "step() of an optimizer a second time");
  scaler.update();
  EXPECT_TRUE(scaler.step(optimizer));
  expect_refused([] { GradScaler({.growth_factor = 1}); }, "growth_factor is above 1");
  expect_refused([] { GradScaler({.init_scale = 0}); }, "init_scale is above 0");
}

TEST(MovingAverageTest, TheFirstUpdateCopiesAndLaterOnesMove) {
  nn::Linear layer(1, 1, {.bias = false});
  const auto set = [&](double value) {
    const NoGrad no_grad;
    layer->weight.fill_(value);
  };
  set(1);
  ExponentialMovingAverage average(*layer, 0.75);
  set(4);
  average.update();
  set(8);
  average.update();
  {
    const auto applied = average.apply();
    EXPECT_EQ(layer->weight.item(), 5);
  }
  EXPECT_EQ(layer->weight.item(), 8);
  ExponentialMovingAverage other(*layer, 0.75);
  other.load_state_dict(average.state_dict());
  other.update();
  EXPECT_EQ(other.state_dict().at("weight").item(), 5.75);
  expect_refused([&] { ExponentialMovingAverage(*layer, 1); }, "[0, 1)");
}

TEST(MovingAverageTest, IntegersAreCopied) {
  struct Counting : nn::Module {
    Tensor count = register_parameter("count", arange(3), {.requires_grad = false});
  } module;
  ExponentialMovingAverage average(module, 0.5);
  for (int i = 0; i < 3; ++i) {
    module.count.add_(1);
    average.update();
  }
  EXPECT_EQ(average.state_dict().at("count").to_vector(), (std::vector<double>{3, 4, 5}));
}

TEST(MovingAverageTest, PartsOfAMeshAreAveragedWhereTheyLie) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"fsdp"});
    nn::Linear layer(2, 3);
    ExponentialMovingAverage early(*layer);
    layer->distribute_parameter("weight", mesh, {Shard(0)});
    ExponentialMovingAverage average(*layer, 0.5);
    average.update();
    EXPECT_EQ(average.state_dict().at("weight").placements(), Placements{Shard(0)});
    expect_refused([&] { early.update(); }, {"\"weight\"", "make it after parallelize()"});
  });
}

}  // namespace
}  // namespace dtrun::dtensor::optim
