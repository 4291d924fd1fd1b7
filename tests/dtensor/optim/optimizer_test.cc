// What optimizers refuse, keep and load, and what a step costs in communication.
#include "dtrun/dtensor/optim/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "dtensor/refusal.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/move/comm_counter.h"
#include "dtrun/dtensor/nn/containers.h"
#include "dtrun/dtensor/nn/linear.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/dtensor/optim/adam.h"
#include "dtrun/dtensor/optim/check_finite.h"
#include "dtrun/dtensor/optim/clip_grad.h"
#include "dtrun/dtensor/optim/lr_scheduler.h"
#include "dtrun/dtensor/optim/sgd.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor::optim {
namespace {

using collectives::ProcessGroup;

Tensor parameter(const Shape& shape, double value = 1) {
  Tensor tensor = full(shape, value);
  tensor.requires_grad_();
  return tensor;
}

TEST(OptimTest, WhatCannotBeDoneIsRefused) {
  const Tensor p = parameter({2}), q = parameter({3});
  expect_refused([&] { SGD({}, {}); }, "at least one parameter");
  expect_refused([&] { SGD({p, q, p}); }, "parameter 2 of group 0 is in the optimizer already");
  expect_refused([&] { SGD({ones(2)}); }, "no leaf of which a gradient is wanted");
  expect_refused([&] { SGD({p * 2}); }, "no leaf of which a gradient is wanted");
  expect_refused([&] { SGD({p}, {.lr = -1}); }, "lr is at least 0");
  expect_refused([&] { SGD({p}, {.lr = std::nan("")}); }, "lr is at least 0");
  expect_refused([&] { SGD({p}, {.nesterov = true}); }, "nesterov takes a momentum");
  expect_refused([&] { Adam({p}, {.beta1 = 1}); }, "betas are in [0, 1)");
  expect_refused([&] { AdamW({p}, {.weight_decay = -1}); }, "weight_decay is at least 0");
  SGD optimizer({p}, {.lr = 0.1});
  expect_refused([&] { optimizer.set_lr(0.1, 1); }, "there is no group 1");
  expect_refused([&] { StepLR(optimizer, 0); }, "it is at least 1");
  const Tensor half = full({2}, 1, {.dtype = DType::bf16});
  half.requires_grad_();
  half.set_grad(full({2}, 1, {.dtype = DType::bf16}));
  SGD of_halves({half});
  expect_refused([&] { of_halves.step(); }, "which keeps f32 copies of halves");
}

TEST(OptimTest, GroupsHaveOptionsOfTheirOwnAndWhatHasNoGradientStays) {
  const Tensor p = parameter({2}), q = parameter({2}), untouched = parameter({2});
  SGD optimizer({{{p, untouched}, {.lr = 0.5}}, {{q}, {.lr = 0.25}}});
  sum(p + q).backward();
  optimizer.step();
  EXPECT_EQ(p.to_vector(), (std::vector<double>{0.5, 0.5}));
  EXPECT_EQ(q.to_vector(), (std::vector<double>{0.75, 0.75}));
  EXPECT_EQ(untouched.to_vector(), (std::vector<double>{1, 1}));
  EXPECT_TRUE(p.requires_grad());
  optimizer.zero_grad();
  EXPECT_FALSE(p.grad().defined());
  const StepLR schedule(optimizer, 1, 0.1);
  EXPECT_EQ(schedule.get_last_lr(), (std::vector<double>{0.5, 0.25}));
}

/// Of both groups, whose rates were 0.5 and 2, at the steps from 0 on.
template <typename Schedule, typename... Args>
void expect_rates(const std::function<double(std::int64_t)>& factor, Args... args) {
  const Tensor p = parameter({1}), q = parameter({1});
  SGD optimizer({{{p}, {.lr = 0.5}}, {{q}, {.lr = 2}}});
  Schedule schedule(optimizer, args...);
  for (std::int64_t step = 0; step < 12; ++step) {
    EXPECT_NEAR(optimizer.lr(0), 0.5 * factor(step), 1e-15) << "step " << step;
    EXPECT_NEAR(optimizer.lr(1), 2 * factor(step), 1e-15) << "step " << step;
    EXPECT_EQ(schedule.last_epoch(), step);
    schedule.step();
  }
  // Closed forms, so that a schedule goes on anywhere.
  schedule.set_last_epoch(3);
  EXPECT_NEAR(optimizer.lr(0), 0.5 * factor(3), 1e-15);
}

TEST(OptimTest, RatesAreTheClosedFormsOfPyTorch) {
  using Milestones = std::vector<std::int64_t>;
  expect_rates<LambdaLR>([](std::int64_t step) { return 1.0 / static_cast<double>(1 + step); },
                         [](std::int64_t step) { return 1.0 / static_cast<double>(1 + step); });
  const auto stairs = [](std::int64_t step) { return std::pow(0.1, step / 4); };
  expect_rates<StepLR>(stairs, 4);
  expect_rates<StepLR>([](std::int64_t step) { return std::pow(0.5, step); }, 1, 0.5);
  const auto milestones = [](std::int64_t step) { return step < 2 ? 1 : step < 5 ? 0.5 : 0.125; };
  expect_rates<MultiStepLR>(milestones, Milestones{2, 5, 5}, 0.5);
  expect_rates<MultiStepLR>(milestones, Milestones{5, 2, 5}, 0.5);
  expect_rates<MultiStepLR>([](std::int64_t step) { return step < 3 ? 1 : 0.1; }, Milestones{3});
  expect_rates<ConstantLR>([](std::int64_t step) { return step < 5 ? 1.0 / 3 : 1; });
  expect_rates<ConstantLR>([](std::int64_t step) { return step < 2 ? 0.25 : 1; }, 0.25, 2);
  const auto power = [](double of) {
    return [of](std::int64_t step) {
      return std::pow(1 - std::min(1.0, static_cast<double>(step) / 5), of);
    };
  };
  expect_rates<PolynomialLR>(power(1));
  expect_rates<PolynomialLR>(power(2.5), 5, 2.5);
}

TEST(OptimTest, NesterovLooksAheadAsInPyTorch) {
  for (const double decay : {0.0, 0.25}) {
    // torch.optim.SGD: buffer = momentum * buffer + gradient, and a step by gradient + momentum *
    // buffer.
    double expected = 2, buffer = 0;
    const Tensor p = parameter({3}, expected);
    SGD optimizer({p}, {.lr = 0.1, .momentum = 0.9, .weight_decay = decay, .nesterov = true});
    for (int step = 0; step < 4; ++step) {
      const double gradient = 2 * expected + decay * expected;
      buffer = 0.9 * buffer + gradient;
      expected -= 0.1 * (gradient + 0.9 * buffer);
      sum(p * p).backward();
      optimizer.step();
      optimizer.zero_grad();
      for (const double found : p.to_vector()) EXPECT_NEAR(found, expected, 1e-5) << step;
    }
  }
}

TEST(OptimTest, AStepBetweenForwardAndBackwardIsNoticed) {
  const Tensor p = parameter({2}), q = parameter({2});
  SGD optimizer({p});
  const Tensor loss = sum(p * q);
  p.set_grad(ones(2));
  optimizer.step();
  expect_refused([&] { loss.backward(); }, "was written to");
}

/// Two steps of both, or one by each with the state in between.
void check_state(const std::function<Tensor(const Tensor&)>& place,
                 const std::function<Tensor(const Tensor&)>& place_again) {
  const auto run = [](AdamW& optimizer, const Tensor& p) {
    sum(p * p).backward();
    optimizer.step();
    optimizer.zero_grad();
  };
  const Tensor start = tensor({{1.0, -2.0}, {3.0, 0.5}}).to(DType::f64);
  Tensor p = place(start), q = place(start);
  p.requires_grad_(), q.requires_grad_();
  AdamW both({p}, {.lr = 0.1}), first({q}, {.lr = 0.1});
  run(both, p), run(both, p), run(first, q);
  Tensor r = place_again(Tensor(q.detach().full_tensor().local().clone()));
  r.requires_grad_();
  AdamW second({r}, {.lr = 0.7});
  second.load_state_dict(first.state_dict());
  EXPECT_EQ(second.lr(), 0.1);
  run(second, r);
  EXPECT_EQ(r.detach().full_tensor().to_vector(), p.detach().full_tensor().to_vector());
}

TEST(OptimTest, AStateThatIsLoadedGoesOnTheSameOnAnotherLayout) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const auto on = [&mesh](const Placement& placement) {
      return [&mesh, placement](const Tensor& tensor) {
        return distribute_tensor(tensor, mesh, {placement}, {.source_rank = -1});
      };
    };
    check_state(on(Shard(0)), on(Shard(1)));
    check_state(on(Replicate()), on(Shard(0)));
  });
}

TEST(OptimTest, AStateThatDoesNotFitChangesNothing) {
  const Tensor p = parameter({2}), q = parameter({3});
  AdamW small({p}), large({q});
  p.set_grad(ones(2)), q.set_grad(ones(3));
  small.step(), large.step();
  expect_refused([&] { small.load_state_dict(large.state_dict()); },
                 "state.0.exp_avg is [3], not [2]");
  nn::StateDict more = small.state_dict();
  more.insert("state.1.step", ones({}));
  expect_refused([&] { small.load_state_dict(more); }, "which this optimizer does not have");
  expect_refused([&] { small.load_state_dict({}); }, "the state has no param_groups.0.lr");
  EXPECT_EQ(small.state_dict().at("state.0.step").item(), 1);
}

TEST(OptimTest, AStepSendsNothingAndClippingOneNumberPerWayOfBeingCut) {
  test::run_ranks(4, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2});
    Tensors parameters;
    for (int i = 0; i < 30; ++i) {
      const Placements cut = i % 3 == 0   ? Placements{Shard(0), Replicate()}
                             : i % 3 == 1 ? Placements{Shard(0), Shard(1)}
                                          : Placements{Replicate(), Replicate()};
      parameters.push_back(ones({4, 4}, mesh, cut));
      parameters.back().requires_grad_();
      parameters.back().set_grad(ones({4, 4}, mesh, cut));
    }
    AdamW optimizer(parameters);
    CommCounter counter;
    EXPECT_NEAR(clip_grad_norm_(parameters, 1).item(), std::sqrt(30 * 16), 1e-4);
    // Along one axis, and along both of them.
    EXPECT_EQ(counter.get_total_counts(), 3);
    optimizer.step();
    EXPECT_EQ(counter.get_total_counts(), 3);
    EXPECT_NEAR(parameters[0].grad().full_tensor().to_vector()[0], 1 / std::sqrt(480), 1e-6);
  });
}

TEST(OptimTest, WhatIsNotFiniteIsNamedOnAllRanks) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    const nn::Sequential model{nn::Linear(2, 2), nn::Linear(2, 4)};
    model->get_submodule("1").distribute_parameter("weight", mesh, {Shard(0)});
    check_finite(*model, 1, mesh);
    const Tensor weight = model->get_parameter("1.weight");
    const Tensor ones = zeros_like(weight.detach());
    // The last row is the second rank's.
    if (group.rank() == 1) Tensor(ones.local())[1].fill_(std::nan(""));
    weight.set_grad(ones);
    expect_refused([&] { check_finite(*model, 7, mesh); },
                   {"step 7: the gradient of \"1.weight\" is not finite: 2 of 4 numbers",
                    "found on rank 1", "clip_grad_norm_"});
    if (group.rank() == 0) check_finite(*model, 7);
    const NoGrad no_grad;
    const Tensor first = model->get_parameter("0.bias");
    if (group.rank() == 0) first.fill_(std::numeric_limits<double>::infinity());
    expect_refused([&] { check_finite(*model, 8, mesh); },
                   {"step 8: parameter \"0.bias\" is not finite: 2 of 2", "found on rank 0"});
    if (group.rank() == 0)
      expect_refused([&] { check_finite(*model, 9); }, "step 9: parameter \"0.bias\"");
  });
}

TEST(OptimTest, GradientsThatAreNotFiniteAreRefusedOnDemand) {
  const Tensor p = parameter({2});
  p.set_grad(full({2}, std::numeric_limits<double>::infinity()));
  expect_refused([&] { clip_grad_norm_({p}, 1, {.error_if_nonfinite = true}); },
                 "a gradient is nan or infinite");
  EXPECT_TRUE(std::isinf(p.grad().to_vector()[0]));
  EXPECT_TRUE(std::isinf(clip_grad_norm_({p}, 1).item()));
  p.set_grad(tensor({-3.0, 0.5}));
  clip_grad_value_({p}, 1);
  EXPECT_EQ(p.grad().to_vector(), (std::vector<double>{-1, 0.5}));
  EXPECT_EQ(clip_grad_norm_({parameter({2})}, 1).item(), 0);
}

}  // namespace
}  // namespace dtrun::dtensor::optim
