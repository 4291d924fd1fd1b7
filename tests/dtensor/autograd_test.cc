// The tape: what is recorded, in which order the engine goes back, what is refused, what is freed.
#include "dtrun/dtensor/autograd/grad.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "dtensor/gradient_check.h"
#include "dtensor/refusal.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/rows.h"

namespace dtrun::dtensor {
namespace {

Tensor leaf_of(const Values& values) {
  return tensor_from(values, {static_cast<std::int64_t>(values.size())}, DType::f64)
      .requires_grad_();
}

TEST(AutogradTest, GradientsAddUpOverBackwardsAndUses) {
  const Tensor x = leaf_of({1, 2});
  (x * x + x).sum().backward();
  EXPECT_EQ(x.grad().to_vector(), (Values{3, 5}));
  (x * 10.0).sum().backward();
  EXPECT_EQ(x.grad().to_vector(), (Values{13, 15}));
  x.set_grad({});
  EXPECT_FALSE(x.grad().defined());
}

TEST(AutogradTest, AGraphIsGoneThroughOnceUnlessItIsRetained) {
  const Tensor x = leaf_of({2});
  const Tensor y = (x * x).sum();
  y.backward({.retain_graph = true});
  y.backward();
  EXPECT_EQ(x.grad().to_vector(), (Values{8}));
  expect_refused([&] { y.backward(); }, "a second time");
}

TEST(AutogradTest, WhatCannotBeGoneBackFromIsRefused) {
  const Tensor x = leaf_of({1, 2});
  expect_refused([&] { (x * x).backward(); }, "takes a tensor with one element");
  expect_refused([] { ones({1}).backward(); }, "no gradient is wanted");
  expect_refused([] { tensor({1, 2}).requires_grad_(); }, "only floating point numbers");
  expect_refused([&] { (x * x).requires_grad_(false); }, "has made");
  expect_refused([&] { (x * x).backward(ones({3}, kDoubles)); }, "");
}

TEST(AutogradTest, NothingIsRecordedWithinNoGradAndBehindDetach) {
  const Tensor x = leaf_of({1, 2});
  {
    const NoGrad no_grad;
    EXPECT_FALSE(is_grad_enabled());
    EXPECT_FALSE((x * x).requires_grad());
  }
  EXPECT_TRUE(is_grad_enabled());
  (x.detach() * x).sum().backward();
  EXPECT_EQ(x.grad().to_vector(), (Values{1, 2}));
}

TEST(AutogradTest, HooksSeeTheWholeGradientAndMayReplaceIt) {
  const Tensor x = leaf_of({1, 2});
  std::vector<std::string> order;
  const Tensor y = x * 2.0;
  y.register_hook([&](const Tensor& gradient) {
    order.push_back("y " + std::to_string(gradient.to_vector()[0]).substr(0, 1));
    return gradient * 10.0;
  });
  x.register_post_accumulate_grad_hook([&](const Tensor& leaf) {
    order.push_back("x " + std::to_string(leaf.grad().to_vector()[0]).substr(0, 2));
  });
  (y + y).sum().backward();
  EXPECT_EQ(order, (std::vector<std::string>{"y 2", "x 40"}));
}

TEST(AutogradTest, AGradientThatIsRetainedIsThatOfTheMiddle) {
  const Tensor x = leaf_of({3});
  const Tensor y = x * x;
  EXPECT_FALSE(y.grad().defined());
  y.retain_grad();
  (y * y).sum().backward();
  EXPECT_EQ(y.grad().to_vector(), (Values{18}));
  EXPECT_EQ(x.grad().to_vector(), (Values{108}));
}

TEST(AutogradTest, AGradientIsRetainedOfTheTensorAlsoAfterAChangeInPlace) {
  const Tensor x = leaf_of({2});
  const Tensor y = x * 3.0;
  y.retain_grad();
  y.mul_(5.0);
  y.sum().backward();
  EXPECT_EQ(y.grad().to_vector(), (Values{1}));
  EXPECT_EQ(x.grad().to_vector(), (Values{15}));
}

TEST(AutogradTest, WhatIsOverwrittenHasTheGradientZero) {
  const auto expect_zero = [](const std::function<void(const Tensor&)>& overwrite) {
    const Tensor x = leaf_of({2, kInfinity});
    const Tensor y = x * 3.0;
    y.retain_grad();
    overwrite(y);
    EXPECT_EQ(y.to_vector(), (Values{-0.0, -0.0}));
    EXPECT_EQ(std::signbit(y.to_vector()[0]), true);
    y.sum().backward();
    EXPECT_EQ(y.grad().to_vector(), (Values{1, 1}));
    EXPECT_EQ(x.grad().to_vector(), (Values{0, 0}));
  };
  expect_zero([](const Tensor& y) { y.fill_(-0.0); });
  expect_zero([](const Tensor& y) { y.copy_(tensor({-0.0})); });
}

TEST(AutogradTest, APieceOfAStraightLineHasTheSecondDerivativeZero) {
  using Form = Tensor (*)(const Tensor&);
  for (const Form form :
       {Form{relu}, Form{relu6}, Form{[](const Tensor& x) { return leaky_relu(x); }}}) {
    const Tensor x = leaf_of({2, -1});
    const Tensor first = grad({form(x).sum()}, {x}, {}, {.create_graph = true})[0];
    EXPECT_EQ(grad({first.sum()}, {x})[0].to_vector(), (Values{0, 0}));
  }
}

TEST(AutogradTest, DerivativesOfDerivativesAreRight) {
  const Tensor x = leaf_of({2});
  const Tensor first = grad({(x * x * x).sum()}, {x}, {}, {.create_graph = true})[0];
  EXPECT_EQ(first.to_vector(), (Values{12}));
  EXPECT_FALSE(x.grad().defined());
  first.sum().backward();
  EXPECT_EQ(x.grad().to_vector(), (Values{12}));
}

// Of an operand that was brought elsewhere for the operator, which keeps it as it came.
TEST(AutogradTest, ADerivativeOfADerivativeLiesAsItsTensor) {
  struct Case {
    std::vector<int> mesh;
    Placements first, second;
  };
  const std::vector<Case> cases = {
      {{2}, {Shard(0)}, {Shard(1)}},
      {{2, 2}, {Shard(0), Shard(1)}, {Shard(1), Shard(0)}},
      {{2, 2}, {Shard(0), Replicate()}, {Shard(1), Shard(0)}},
  };
  const Tensor numbers = randn({4, 4}, {1}, kDoubles), others = randn({4, 4}, {2}, kDoubles);
  for (const Case& each : cases) {
    test::run_ranks(each.mesh.size() == 1 ? 2 : 4, [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, each.mesh);
      const auto leaf = [&](const Tensor& whole, const Placements& placements) {
        return distribute_tensor(whole, mesh, placements, {.source_rank = -1}).requires_grad_();
      };
      const Tensor a = leaf(numbers, each.first), b = leaf(others, each.second);
      const Tensor slope = grad({(a * b).sum()}, {a}, {}, {.create_graph = true})[0];
      slope.square().sum().backward();
      EXPECT_EQ(b.grad().placements(), each.second);
      EXPECT_EQ(difference(b.grad().full_tensor(), others * 2.0, {1e-12, 1e-12}), "");
    });
  }
}

TEST(AutogradTest, GradOfWhatNoOutputDependsOnIsUndefined) {
  const Tensor x = leaf_of({2}), other = leaf_of({3});
  const Tensors gradients = grad({(x * 5.0).sum()}, {x, other});
  EXPECT_EQ(gradients[0].to_vector(), (Values{5}));
  EXPECT_FALSE(gradients[1].defined());
}

TEST(AutogradTest, GradOfNothingIsRefused) {
  const Tensor x = leaf_of({2});
  expect_refused([&] { grad({}, {x}); }, "grad() of no outputs");
  expect_refused([&] { grad({x.sum()}, {}); }, "with regard to no inputs");
}

TEST(AutogradTest, AHookGivesAGradientOfTheSameShapeAndDtypeAndMayGoBackItself) {
  const Tensor x = leaf_of({2}), other = leaf_of({5});
  const Tensor wrong_shape = x * 2.0, wrong_dtype = x * 2.0, right = x * 2.0;
  wrong_shape.register_hook([](const Tensor&) { return ones({2}, kDoubles); });
  wrong_dtype.register_hook([](const Tensor& g) { return g.to(DType::f32); });
  expect_refused([&] { wrong_shape.sum().backward(); }, "a gradient of shape [2]");
  expect_refused([&] { wrong_dtype.sum().backward(); }, "float32");
  right.register_hook([&](const Tensor&) {
    const GradMode on(true);
    (other * other).sum().backward();
    return Tensor();
  });
  right.sum().backward();
  EXPECT_EQ(other.grad().to_vector(), (Values{10}));
  EXPECT_EQ(x.grad().to_vector(), (Values{2}));
}

TEST(AutogradTest, GraphsOfTwoThreadsAreGoneThroughAtOnce) {
  Values found[2];
  const auto work = [&found](std::size_t thread) {
    for (int turn = 0; turn < 50; ++turn) {
      const Tensor x = leaf_of({static_cast<double>(thread + 2)});
      (x * x * x).sum().backward();
      found[thread] = x.grad().to_vector();
    }
  };
  std::thread one(work, 0), two(work, 1);
  one.join();
  two.join();
  EXPECT_EQ(found[0], (Values{12}));
  EXPECT_EQ(found[1], (Values{27}));
}

TEST(AutogradTest, ADiamondIsGoneThroughOnce) {
  const Tensor x = leaf_of({2});
  const Tensor y = x * 3.0;
  (y * y + exp(y * 0.0) * y).sum().backward();
  EXPECT_EQ(x.grad().to_vector(), (Values{2 * 6 * 3 + 3}));
}

TEST(AutogradTest, WhatAGradientNeedsMayNotChangeInPlace) {
  const Tensor x = leaf_of({2});
  const Tensor y = x * 1.0;
  const Tensor z = (y * y).sum();
  {
    const NoGrad no_grad;
    y.add_(ones({1}, kDoubles));
  }
  expect_refused([&] { z.backward(); }, "changed in place");
}

TEST(AutogradTest, InPlaceFormsBecomePartOfTheGraph) {
  const Tensor x = leaf_of({2, 3});
  const Tensor y = x * 1.0;
  y.mul_(x);
  y.add_(x);
  y.sum().backward();
  EXPECT_EQ(x.grad().to_vector(), (Values{5, 7}));
  expect_refused([&] { x.add_(x); }, "on a leaf");
  expect_refused([&] { (x * 1.0).view({2, 1}).add_(ones({1}, kDoubles)); }, "view");
  expect_refused([] { tensor({1, 2}).mul_(tensor({0.5})); }, "does not fit into it");
}

TEST(AutogradTest, AnElementIsWrittenByItsIndex) {
  const Tensor x = zeros({2, 2});
  x[0] = 3;
  x[1][0] = 4;
  x.slice(1, 1, 2) = ones({2, 1}) * 7;
  EXPECT_EQ(x.to_vector(), (Values{3, 7, 4, 7}));
}

TEST(AutogradTest, AnAssignmentThatNobodyWouldSeeIsRefused) {
  expect_refused([] { ones({2}).clone() = 3; }, "nobody would see it");
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor sharded = zeros({4, 2}, mesh, {Shard(0)});
    expect_refused([&] { sharded[0] = 3; }, "nobody would see it");
    sharded.select(1, 1) = 5;
    EXPECT_EQ(sharded.to_vector(), (Values{0, 5, 0, 5, 0, 5, 0, 5}));
    const Tensor replicated = zeros({2, 2}, mesh, {Replicate()});
    replicated[0] = 3;
    EXPECT_EQ(replicated.to_vector(), (Values{3, 3, 0, 0}));
  });
}

TEST(AutogradTest, AFilledPartialTensorHasTheValue) {
  test::run_ranks(3, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {3});
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::max, ReduceOp::product}) {
      const Tensor x = distribute_tensor(ones({2}), mesh, {Partial(op)});
      x.fill_(7);
      EXPECT_EQ(x.to_vector(), (Values{7, 7}));
      x.copy_(tensor(5.0));
      EXPECT_EQ(x.to_vector(), (Values{5, 5}));
      EXPECT_EQ(x.placements()[0], Partial(op));
    }
  });
}

TEST(AutogradTest, InPlaceFormsOnAMeshAreTheSameOnAllRanks) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor x = distribute_tensor(ones({4, 3}), mesh, {Shard(0)});
    const Tensor total = zeros({});
    total.add_(x.sum());
    EXPECT_EQ(total.to_vector(), (Values{12}));
    // What becomes Partial, contiguous or reshaped shares nothing on any rank.
    const Tensor whole = distribute_tensor(ones({2, 2}), mesh, {Replicate()});
    whole.redistribute({Partial()}).fill_(9);
    EXPECT_EQ(whole.local().to_vector(), (Values{1, 1, 1, 1}));
    const Tensor uneven = distribute_tensor(ones({3, 2}), mesh, {Shard(0)});
    uneven.t().contiguous().fill_(9);
    uneven.t().reshape({2, 3}).fill_(9);
    EXPECT_EQ(uneven.to_vector(), Values(6, 1));
    // A part of a leaf is a view of it.
    x.requires_grad_();
    expect_refused([&] { x.to_local().mul_(ones({1})); }, "on a view");
  });
}

TEST(AutogradTest, ALongChainNeedsNoStack) {
  const Tensor x = leaf_of({1});
  Tensor y = x;
  for (int i = 0; i < 200'000; ++i) y = y + 0.0;
  y.sum().backward({.retain_graph = true});
  EXPECT_EQ(x.grad().to_vector(), (Values{1}));
  y = {};  // and goes without one
}

TEST(AutogradTest, ACheckpointGivesTheSameGradients) {
  const Tensor x = leaf_of({0.5, 2}), weight = leaf_of({3, 4});
  const auto layer = [&](const Tensor& in) { return exp(in * weight) * in; };
  layer(x).sum().backward();
  const Values of_x = x.grad().to_vector(), of_weight = weight.grad().to_vector();
  x.set_grad({});
  weight.set_grad({});
  checkpoint(layer, x).sum().backward();
  EXPECT_EQ(x.grad().to_vector(), of_x);
  EXPECT_EQ(weight.grad().to_vector(), of_weight);
  // Also where only what is captured wants one.
  weight.set_grad({});
  checkpoint(layer, x.detach()).sum().backward();
  EXPECT_EQ(weight.grad().to_vector(), of_weight);
}

// Which rows are gathered depends on whether a gradient is wanted, which the first run does not
// show.
TEST(AutogradTest, BothRunsOfACheckpointLieAlike) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor whole = randn({8, 8}, {1}, kDoubles);
    const auto rows = [&](const Tensor& in) {
      const Tensor y = softmax(in, 1);
      return DTensor::from_local(square(y.to_local()), mesh, y.placements());
    };
    const auto gradient_with = [&](const std::function<Tensor(const Tensor&)>& f) {
      const Tensor x = distribute_tensor(whole, mesh, {Shard(1)}, {.source_rank = -1});
      x.requires_grad_();
      f(x).sum().backward();
      return x.grad().full_tensor();
    };
    std::vector<Placements> runs;
    const auto watched = [&](const Tensor& in) {
      const Tensor y = rows(in);
      runs.push_back(y.placements());
      return y;
    };
    const Tensor found = gradient_with([&](const Tensor& x) { return checkpoint(watched, x); });
    ASSERT_EQ(runs.size(), 2U);
    EXPECT_EQ(runs[0], runs[1]);
    EXPECT_EQ(difference(found, gradient_with(rows), {1e-12, 1e-12}), "");
  });
}

TEST(AutogradTest, ACheckpointOfIntegersWantsNoGradient) {
  const Tensor x = leaf_of({2});
  EXPECT_FALSE(checkpoint([](const Tensor& a) { return a.to(DType::i64); }, x).requires_grad());
}

TEST(AutogradTest, ACheckpointWhoseGradientWouldBeWrongIsRefused) {
  const Tensor weight = leaf_of({3, 4});
  const auto layer = [&](const Tensor& in) { return exp(in * weight); };
  const Tensor x = leaf_of({0.5, 2}).detach();
  const Tensor y = checkpoint(layer, x).sum();
  expect_refused([&] { grad({y}, {weight}); }, "grad() through checkpoint");
  x.add_(1);
  expect_refused([&] { y.backward(); }, "changed in place");
  EXPECT_FALSE(weight.grad().defined());
  // Past the operators.
  const auto writes = [](const Tensor& in) { return tensors::mul_(in.local(), 2), exp(in); };
  expect_refused([&] { checkpoint(writes, x); },
                 "a function that changes its input of shape [2] in place");
}

TEST(AutogradTest, ACheckpointMayChangeInPlaceWhatItHasMadeAlone) {
  const Tensor weight = leaf_of({3, 4}), x = leaf_of({0.5, 2});
  const Tensor calls = full({2}, 0), before = x.detach().clone();
  const auto refused = [&](const std::function<Tensor(const Tensor&)>& f, const char* words) {
    expect_refused([&] { checkpoint(f, x); }, words);
    expect_refused([&] { checkpoint([&](const Tensor& in) { return checkpoint(f, in); }, x); },
                   words);
  };
  refused([&](const Tensor& in) { return exp(in.mul_(weight)); },
          "mul_ within checkpoint() on a tensor of shape [2] that was made before it");
  refused([&](const Tensor& in) { return calls.add_(1), exp(in * weight); },
          "add_ within checkpoint() on a tensor of shape [2]");
  refused([&](const Tensor& in) { return calls.narrow(0, 1, 1).fill_(1), exp(in * weight); },
          "fill_ within checkpoint() on a tensor of shape [1]");
  refused([&](const Tensor& in) { return calls.copy_(in), exp(in * weight); },
          "copy_ within checkpoint()");
  // Of the outer checkpoint, which runs the inner one twice.
  expect_refused(
      [&] {
        checkpoint(
            [&](const Tensor& in) {
              const Tensor sums = in.clone();
              return checkpoint([&](const Tensor& y) { return sums.add_(y), y * weight; }, in);
            },
            x);
      },
      "add_ within checkpoint()");
  EXPECT_EQ(calls.to_vector(), (Values{0, 0}));
  EXPECT_EQ(x.to_vector(), before.to_vector());
  // Its own, also what an inner one has made.
  const auto own = [&](const Tensor& in) {
    const Tensor y = checkpoint([&](const Tensor& z) { return z.clone().mul_(weight); }, in);
    return exp(y.detach().clone().add_(1)) * y;
  };
  checkpoint(own, x).sum().backward();
  EXPECT_NEAR(weight.grad().to_vector()[1], 2 * std::exp(2 * 4 + 1), 1e-3);
  // What communication has made is its own, too.
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor cut = distribute_tensor(leaf_of({0.5, 2}).detach(), mesh, {Shard(0)});
    cut.requires_grad_();
    checkpoint([](const Tensor& in) { return in.redistribute({Replicate()}).mul_(2.0).exp(); }, cut)
        .sum()
        .backward();
    EXPECT_NEAR(cut.grad().full_tensor().to_vector()[1], 2 * std::exp(4), 1e-9);
  });
  // Run once, it may change what it likes.
  const NoGrad no_grad;
  checkpoint([&](const Tensor& in) { return calls.add_(1), exp(in); }, x);
  EXPECT_EQ(calls.to_vector(), (Values{1, 1}));
}

TEST(AutogradTest, AGraphKeepsWhatItNeedsAndGoesWithItsTensors) {
  int released = 0;
  double values[] = {1, 2};
  {
    Tensor y;
    {
      const Tensor x = LocalTensor(
          tensors::Storage::wrap(values, sizeof values, tensors::kCpu, [&] { ++released; }),
          DType::f64, {2}, {1});
      x.requires_grad_();
      x.register_hook([x = x.detach()](const Tensor&) { return Tensor(); });
      y = (x * x).sum();
    }
    EXPECT_EQ(released, 0);
    y.backward();
  }
  EXPECT_EQ(released, 1);
}

TEST(AutogradTest, AGradientLiesAsItsTensor) {
  test::run_ranks(4, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2});
    const Tensor whole = randn({4, 6}, {1}, kDoubles);
    for (const Placement& first : {Shard(0), Shard(1), Replicate(), Partial()}) {
      for (const Placement& second : {Shard(0), Shard(1), Replicate(), Partial()}) {
        const Tensor x =
            distribute_tensor(whole, mesh, {first, second}, {.source_rank = -1}).requires_grad_();
        (x * x).sum().backward();
        EXPECT_EQ(difference(x.grad().full_tensor(), whole * 2.0, {1e-12, 1e-12}), "");
        const auto expected = [](const Placement& placement) {
          return placement.is_partial() ? Replicate() : placement;
        };
        EXPECT_EQ(x.grad().placements(), (Placements{expected(first), expected(second)}));
      }
    }
  });
}

// pytorch/pytorch#172932: each rank uses what all have for a part of the result.
TEST(AutogradTest, GradPlacementsSayHowTheRanksGradientsLie) {
  test::run_ranks(4, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2});
    const Tensor whole = randn({4, 6}, {1}, kDoubles);
    const auto own_factor = [&] { return whole * (group.rank() + 1.0); };
    const Placements sums = {Partial(), Partial()};

    const Tensor x = distribute_tensor(whole, mesh, {Replicate(), Replicate()}).requires_grad_();
    (x.to_local(sums) * own_factor()).sum().backward();
    EXPECT_EQ(x.grad().placements(), (Placements{Replicate(), Replicate()}));
    EXPECT_EQ(difference(x.grad().full_tensor(), whole * 10.0, {1e-12, 1e-12}), "");

    // Along the first axis the ranks' parts are others, and what they have is equal along none.
    const Tensor rows = distribute_tensor(whole, mesh, {Shard(0), Replicate()}).requires_grad_();
    (rows.full_tensor(sums) * own_factor()).sum().backward();
    EXPECT_EQ(difference(rows.grad().full_tensor(), whole * 10.0, {1e-12, 1e-12}), "");

    const Tensor given = (whole * 1.0).requires_grad_();
    const Tensor made = Tensor::from_local(given, mesh, {Replicate(), Replicate()},
                                           {.grad_placements = {Partial(), Replicate()}});
    made.sum().backward();
    // A sum's value stands on the first rank of its axis.
    EXPECT_EQ(difference(given.grad(), whole * 0.0 + (group.rank() < 2 ? 1.0 : 0.0), {0, 0}), "");

    // Cuts keep their order.
    const Tensor turned =
        distribute_tensor(whole, mesh, {Shard(0), Shard(0)}, {.shard_order = {{0, {1, 0}}}})
            .requires_grad_();
    (turned.to_local({Shard(0), Shard(0)}) * turned.local()).sum().backward();
    EXPECT_EQ(difference(turned.grad().full_tensor(), whole, {0, 0}), "");
    const Tensor row = turned.detach().to_local();
    const Tensor part = (row * 1.0).requires_grad_();
    const Tensor joined =
        Tensor::from_local(part, mesh, {Shard(0), Shard(0)},
                           {.shard_order = {{0, {1, 0}}}, .grad_placements = {Shard(0), Shard(0)}});
    (joined * turned.detach()).sum().backward();
    EXPECT_EQ(difference(part.grad(), row, {0, 0}), "");

    // On all ranks alike, also on one whose part would be as large.
    const Tensor one_row = distribute_tensor(ones({1, 4}), mesh, {Shard(0), Replicate()});
    expect_refused([&] { one_row.to_local({Replicate(), Replicate()}); }, "cut");
    expect_refused([&] { rows.to_local({Shard(1), Replicate()}); }, "grad_placements");
    expect_refused([&] { rows.to_local({Shard(0)}); }, "2");
    expect_refused(
        [&] {
          Tensor::from_local(given, mesh, {Replicate(), Replicate()},
                             {.grad_placements = {Shard(0), Replicate()}});
        },
        "from_local");
  });
}

/// x^3.
struct Cube : autograd::Function<Cube> {
  static Tensor forward(autograd::FunctionContext& ctx, const Tensor& x) {
    EXPECT_FALSE(is_grad_enabled());
    ctx.save_for_backward({x});
    return x * x * x;
  }
  static Tensor backward(autograd::FunctionContext& ctx, const Tensor& gradient) {
    const Tensor x = ctx.saved_tensors()[0];
    return gradient * x * x * 3;
  }
};

TEST(AutogradTest, AFunctionHasItsOwnGradientOnEveryLayout) {
  const Function cube = [](const Tensor& x) { return Cube::apply(x * 2.0); };
  expect_gradient_right(cube, {4, 3});
  expect_right_on_meshes(cube, {4, 3});
  const Tensor x = leaf_of({2});
  EXPECT_EQ(Cube::apply(x).grad_fn(), "CubeBackward");
  // Its backward is made of operations that have gradients.
  const Tensor first = grad({Cube::apply(x)}, {x}, {}, {.create_graph = true})[0];
  EXPECT_EQ(grad({first}, {x}, {}, {.create_graph = true})[0].item(), 12);
  {
    const NoGrad no_grad;
    EXPECT_FALSE(Cube::apply(x).requires_grad());
  }
  EXPECT_FALSE(Cube::apply(x.detach()).requires_grad());
}

/// factor * (a + b), a * b, and which of a and b is larger.
struct SumAndProduct : autograd::Function<SumAndProduct> {
  static Tensors forward(autograd::FunctionContext& ctx, const Tensor& a, double factor,
                         const Tensors& rest) {
    const Tensor b = rest[0];
    ctx.save_for_backward({a, b, Tensor()});
    ctx.saved_data["factor"] = factor;
    const Tensor larger = where(gt(a, b), a, b);
    ctx.mark_non_differentiable({larger});
    return {(a + b) * factor, a * b, larger, gt(a, b)};
  }
  static Tensors backward(autograd::FunctionContext& ctx, const Tensors& gradients) {
    const Tensors saved = ctx.saved_tensors();
    EXPECT_FALSE(saved[2].defined());
    EXPECT_EQ(gradients.size(), 4U);
    EXPECT_TRUE(gradients[1].defined());
    const Tensor both = gradients[0] * std::any_cast<double>(ctx.saved_data.at("factor"));
    EXPECT_TRUE(ctx.needs_input_grad(0));
    return {both + gradients[1] * saved[1],
            ctx.needs_input_grad(1) ? both + gradients[1] * saved[0] : Tensor()};
  }
};

TEST(AutogradTest, AFunctionMayHaveSeveralResultsAndOtherArguments) {
  const Tensor a = leaf_of({1, 5}), b = leaf_of({3, 4});
  const Tensors results = SumAndProduct::apply(a, 10.0, Tensors{b});
  EXPECT_TRUE(results[1].requires_grad());
  EXPECT_FALSE(results[2].requires_grad());
  EXPECT_EQ(results[2].to_vector(), (Values{3, 5}));
  EXPECT_FALSE(results[3].requires_grad());
  // Nothing comes back for the product: zeros do.
  results[0].sum().backward({.retain_graph = true});
  EXPECT_EQ(a.grad().to_vector(), (Values{10, 10}));
  (results[0] + results[1]).sum().backward();
  EXPECT_EQ(a.grad().to_vector(), (Values{10 + 13, 10 + 14}));
  EXPECT_EQ(b.grad().to_vector(), (Values{10 + 11, 10 + 15}));
  SumAndProduct::apply(a, 1.0, Tensors{b.detach()})[1].sum().backward();
  EXPECT_EQ(a.grad().to_vector(), (Values{23 + 3, 24 + 4}));
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor x = distribute_tensor(ones({4}, kDoubles), mesh, {Shard(0)}).requires_grad_();
    const Tensor y = distribute_tensor(ones({4}, kDoubles), mesh, {Shard(0)}).requires_grad_();
    SumAndProduct::apply(x, 2.0, Tensors{y})[0].sum().backward();
    EXPECT_EQ(y.grad().full_tensor().to_vector(), Values(4, 2));
    EXPECT_EQ(placements_to_string(y.grad().placements()), "[S(0)]");
  });
}

/// exp, from its result.
struct ExpOfResult : autograd::Function<ExpOfResult> {
  static Tensor forward(autograd::FunctionContext& ctx, const Tensor& x) {
    const Tensor y = exp(x);
    ctx.save_for_backward({y, x});
    return y;
  }
  static Tensor backward(autograd::FunctionContext& ctx, const Tensor& gradient) {
    return gradient * ctx.saved_tensors()[0];
  }
};
/// The tensor itself, with twice the gradient.
struct Doubled : autograd::Function<Doubled> {
  static Tensor forward(autograd::FunctionContext&, const Tensor& x) { return x; }
  static Tensor backward(autograd::FunctionContext&, const Tensor& gradient) {
    return gradient * 2;
  }
};

TEST(AutogradTest, AFunctionMaySaveItsResultAndGiveBackItsInput) {
  const Function function = [](const Tensor& x) { return ExpOfResult::apply(x); };
  expect_gradient_right(function, {3});
  const Tensor x = leaf_of({0});
  const Tensor first = grad({ExpOfResult::apply(x)}, {x}, {}, {.create_graph = true})[0];
  EXPECT_EQ(grad({first}, {x})[0].item(), 1);
  Doubled::apply(x).sum().backward();
  EXPECT_EQ(x.grad().item(), 2);
  EXPECT_TRUE(x.is_leaf());
  // What is saved does not keep its own node alive.
  const std::uint32_t owners = x.local().storage()->owners();
  for (int i = 0; i < 3; ++i) Doubled::apply(ExpOfResult::apply(Doubled::apply(x)));
  EXPECT_EQ(x.local().storage()->owners(), owners);
}

/// What a Function must not do.
struct TooFew : autograd::Function<TooFew> {
  static Tensor forward(autograd::FunctionContext&, const Tensor& a, const Tensor& b) {
    return a * b;
  }
  static Tensor backward(autograd::FunctionContext&, const Tensor& gradient) { return gradient; }
};
struct WritesInput : autograd::Function<WritesInput> {
  static Tensor forward(autograd::FunctionContext&, const Tensor& a) { return a.mul_(a); }
  static Tensor backward(autograd::FunctionContext&, const Tensor& gradient) { return gradient; }
};

TEST(AutogradTest, AFunctionThatDoesNotFitIsRefused) {
  const Tensor x = leaf_of({1, 2});
  expect_refused([&] { TooFew::apply(x, x).sum().backward(); },
                 "TooFewBackward: backward gave 1 gradients for 2 tensors");
  expect_refused([&] { WritesInput::apply(x * 1.0); }, "changed an input in place");
  const Tensor twice = Cube::apply(x).sum();
  twice.backward();
  expect_refused([&] { twice.backward(); }, "a second time");
  const Tensor between = x * 1.0;
  const Tensor cube = Cube::apply(between).sum();
  {
    const NoGrad no_grad;
    between.fill_(3);
  }
  expect_refused([&] { cube.backward(); }, "changed in place");
}

TEST(AutogradTest, GradientsCrossBetweenLocalAndDistributed) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor mine = (ones({2, 3}, kDoubles) * (1.0 + group.rank())).requires_grad_();
    const Tensor x = Tensor::from_local(mine, mesh, {Shard(0)});
    (x * x).redistribute({Shard(1)}).full_tensor().sum().backward();
    EXPECT_EQ(mine.grad().to_vector(), Values(6, 2.0 * (1 + group.rank())));
    // A number that joins gets a local gradient, the same on all ranks.
    const Tensor number = tensor({2.0}, {.dtype = DType::f64}).requires_grad_();
    (x.detach() * number).sum().backward();
    EXPECT_FALSE(number.grad().is_distributed());
    EXPECT_EQ(number.grad().to_vector(), (Values{18}));
  });
}

}  // namespace
}  // namespace dtrun::dtensor
