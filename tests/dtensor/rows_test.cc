// softmax, norms, the losses of classes and linear: values and gradients on every layout are those
// of one rank, whose gradients are those of finite differences.
#include "dtrun/dtensor/ops/rows.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "dtensor/gradient_check.h"
#include "dtensor/refusal.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/move/comm_counter.h"
#include "dtrun/dtensor/ops/attention.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/convolution.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/explain.h"
#include "dtrun/dtensor/ops/index.h"
#include "dtrun/dtensor/ops/random.h"
#include "dtrun/dtensor/ops/reduction.h"

namespace dtrun::dtensor {
namespace {

/// Targets for as many rows, on the mesh of the scores.
Tensor targets_like(const Tensor& logits, const std::vector<std::int64_t>& classes) {
  const Tensor whole =
      tensor_from(classes, {static_cast<std::int64_t>(classes.size())}, DType::i64);
  if (!logits.is_distributed()) return whole;
  return distribute_tensor(whole, logits.device_mesh(),
                           Placements(logits.placements().size(), Replicate()),
                           {.source_rank = -1});
}

TEST(RowsTest, SoftmaxHasTheRightGradientOnEveryLayout) {
  for (const int dim : {0, 1, -1}) {
    const Function function = [dim](const Tensor& x) { return softmax(x, dim); };
    expect_gradient_right(function, {4, 5});
    expect_right_on_meshes(function, {4, 5});
  }
}

TEST(RowsTest, LogSoftmaxHasTheRightGradientOnEveryLayout) {
  for (const int dim : {0, -1}) {
    const Function function = [dim](const Tensor& x) { return log_softmax(x, dim); };
    expect_gradient_right(function, {5, 4});
    expect_right_on_meshes(function, {5, 4});
  }
}

TEST(RowsTest, AlongACutDimNothingIsGathered) {
  const Tensor whole = randn({7, 3}, {1}, kDoubles);
  test::run_ranks(3, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {3});
    for (const auto& [name, function] : std::vector<std::pair<const char*, Function>>{
             {"cumsum", [](const Tensor& x) { return cumsum(x, 0); }},
             {"cumprod", [](const Tensor& x) { return cumprod(x, 0); }},
             {"layer_norm",
              [](const Tensor& x) {
                return layer_norm(x, {7, 3});
              }},
             {"rms_norm",
              [](const Tensor& x) {
                return rms_norm(x, {7, 3});
              }},
             {"flip",
              [](const Tensor& x) {
                return flip(x, {0, 1});
              }},
             {"roll", [](const Tensor& x) {
                return roll(x, {-2, 1}, {0, 1});
              }}}) {
      SCOPED_TRACE(name);
      const Tensor x =
          distribute_tensor(whole, mesh, {Shard(0)}, {.source_rank = -1}).requires_grad_();
      const Tensor y = function(x);
      EXPECT_EQ(y.placements(), Placements{Shard(0)});
      EXPECT_EQ(difference(y.full_tensor(), function(whole), {1e-13, 1e-13}), "");
      weighed(y).backward();
      EXPECT_EQ(difference(x.grad().full_tensor(), gradient_of(function, whole), {1e-12, 1e-12}),
                "");
    }
  });
}

// Rows that are gathered sooner than another collective takes spare the way back one.
TEST(RowsTest, SoftmaxAlongACutDimGathersOnlySmallRows) {
  const Tensor many = randn({900, 3}, {1}, kDoubles), few = many.slice(0, 0, 7);
  test::run_ranks(3, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {3});
    for (const Function& function : {Function([](const Tensor& x) { return softmax(x, 0); }),
                                     Function([](const Tensor& x) { return log_softmax(x, 0); })}) {
      for (const Tensor& whole : {many, few}) {
        const bool stays_cut = whole.size(0) == 900;
        const Tensor x = distribute_tensor(whole, mesh, {Shard(0)}, {.source_rank = -1});
        EXPECT_EQ(function(x).placements(), Placements{Shard(0)});
        x.requires_grad_();
        CommCounter counter;
        const Tensor y = function(x);
        EXPECT_EQ(counter.get_total_counts(), 1) << counter;
        EXPECT_EQ(y.placements(), Placements{stays_cut ? Placement(Shard(0)) : Replicate()});
        EXPECT_EQ(difference(y.full_tensor(), function(whole), {1e-13, 1e-13}), "");
        const Tensor loss = weighed(y);
        counter.reset();
        loss.backward();
        EXPECT_EQ(counter.get_total_counts(), stays_cut ? 1 : 0) << counter;
        EXPECT_EQ(difference(x.grad().full_tensor(), gradient_of(function, whole), {1e-12, 1e-12}),
                  "");
      }
    }
  });
}

// What a stretch of a row has may be no number, or lie below all others.
TEST(RowsTest, SoftmaxOfCutRowsTakesInfinitiesAsTheWholeRowDoes) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const Tensor whole =
      tensor({-kInf, -kInf, 1.0, 2.0, 3.0, kInf, -kInf, -kInf, -kInf, kNan, 4.0, 0.0},
             {.dtype = DType::f64})
          .view({4, 3});
  test::run_ranks(3, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {3});
    for (const Placement& cut : {Shard(0), Shard(1)}) {
      const Tensor x = distribute_tensor(whole, mesh, {cut}, {.source_rank = -1});
      for (const int dim : {0, 1}) {
        EXPECT_EQ(difference(softmax(x, dim).full_tensor(), softmax(whole, dim), {1e-15, 0}), "");
        EXPECT_EQ(
            difference(log_softmax(x, dim).full_tensor(), log_softmax(whole, dim), {1e-15, 0}), "");
      }
    }
  });
}

std::uint64_t bytes_sent(const DeviceMesh& mesh) {
  const collectives::TransportCounters counters = mesh.group(0).counters();
  return counters.shared_memory_bytes_sent + counters.tcp_bytes_sent;
}

// A rank's part has 32,000 bytes.
TEST(RowsTest, AFewNumbersOfCutRowsTravel) {
  const Tensor whole = randn({4, 3000}, {1}, kDoubles);
  test::run_ranks(3, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {3});
    const Tensor x =
        distribute_tensor(whole, mesh, {Shard(1)}, {.source_rank = -1}).requires_grad_();
    const Tensor weight = distribute_tensor(ones({3000}, kDoubles), mesh, {Shard(0)});
    std::uint64_t before = bytes_sent(mesh);
    const auto sent = [&] { return bytes_sent(mesh) - std::exchange(before, bytes_sent(mesh)); };
    const Tensor y = layer_norm(x, {3000}, weight) + rms_norm(x, {3000}, weight);
    EXPECT_LE(sent(), 2000U);
    EXPECT_EQ(y.placements(), Placements{Shard(1)});
    y.sum().backward();
    EXPECT_LE(sent(), 4000U);
    EXPECT_EQ(x.grad().placements(), Placements{Shard(1)});
    roll(x, {1}, {1});
    EXPECT_LE(sent(), 1000U);
    // On one rank alone: nobody else is asked.
    if (mesh.rank() == 0) explain([&] { flip(roll(x, {1}, {1}), {1}); });
    // What the middle part has, it keeps.
    flip(x, {1});
    EXPECT_LE(sent(), mesh.rank() == 1 ? 1000U : 33000U);
  });
}

TEST(RowsTest, RowsFarFromZeroHaveTheirVarianceWhereTheyAreCut) {
  const Tensor whole = randn({4, 600}, {1}) + 3e4;
  test::run_ranks(3, [&](const ProcessGroup& group) {
    const Tensor x =
        distribute_tensor(whole, DeviceMesh(group, {3}), {Shard(1)}, {.source_rank = -1});
    EXPECT_EQ(
        difference(layer_norm(x, {600}).full_tensor(), layer_norm(whole, {600}), {1e-3, 1e-2}), "");
  });
}

// 10 over 4 ranks: one has one, one or none; over 2 x 2: a dim that two axes cut, in either order.
TEST(RowsTest, FlipAndRollMoveUnevenAndEmptyParts) {
  test::run_ranks(4, [&](const ProcessGroup& group) {
    const DeviceMesh line(group, {4}), square(group, {2, 2});
    for (const std::int64_t size : {1, 2, 5, 9, 10}) {
      const Tensor whole = randn({size, 3}, {1}, kDoubles);
      const auto expect_alike = [&](const Tensor& x) {
        SCOPED_TRACE(x.spec().to_string());
        EXPECT_EQ(difference(flip(x, {0}).full_tensor(), flip(whole, {0}), {0, 0}), "");
        EXPECT_EQ(difference(flip(x, {1, 0}).full_tensor(), flip(whole, {1, 0}), {0, 0}), "");
        for (const std::int64_t by : {-13, -1, 0, 1, 3, 11}) {
          EXPECT_EQ(difference(roll(x, {by}, {0}).full_tensor(), roll(whole, {by}, {0}), {0, 0}),
                    "");
        }
        EXPECT_EQ(difference(roll(x, {1, 2, 1}, {0, 1, 0}).full_tensor(),
                             roll(whole, {1, 2, 1}, {0, 1, 0}), {0, 0}),
                  "");
      };
      expect_alike(distribute_tensor(whole, line, {Shard(0)}, {.source_rank = -1}));
      const Placements cuts[] = {
          {Shard(0), Shard(0)}, {Shard(1), Shard(0)}, {Shard(0), Replicate()}};
      for (const Placements& placements : cuts) {
        expect_alike(distribute_tensor(whole, square, placements, {.source_rank = -1}));
      }
      const Tensor replicated =
          distribute_tensor(whole, square, {Replicate(), Replicate()}, {.source_rank = -1});
      expect_alike(replicated.redistribute({Shard(0), Shard(0)}, {{0, {1, 0}}}));
    }
  });
}

TEST(RowsTest, AlongACutDimSpecialValuesAndHalvesAreThoseOfWholeRows) {
  const Tensor columns =
      tensor_from(std::vector<double>{-kInfinity, kInfinity, kNan, -3, -kInfinity, 2, 1, 800,
                                      -kInfinity, 0, 5, 801},
                  {3, 4}, DType::f64);
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    const Tensor whole = columns.to(dtype);
    test::run_ranks(3, [&](const ProcessGroup& group) {
      const Tensor cut =
          distribute_tensor(whole, DeviceMesh(group, {3}), {Shard(0)}, {.source_rank = -1});
      const double tolerance = dtype == DType::f64 ? 1e-14 : 1e-6;
      EXPECT_EQ(
          difference(softmax(cut, 0).full_tensor(), softmax(whole, 0), {tolerance, tolerance}), "");
      EXPECT_EQ(difference(log_softmax(cut, 0).full_tensor(), log_softmax(whole, 0),
                           {tolerance, tolerance}),
                "");
      EXPECT_EQ(difference(cumsum(cut, 0).full_tensor(), cumsum(whole, 0), {tolerance, tolerance}),
                "");
    });
  }
}

TEST(RowsTest, TargetsMayBeOfU8) {
  const Tensor scores = tensor({{1., 2., 3.}, {0., -1., 4.}}), target = tensor({2, 0});
  const Tensor narrow = target.to(DType::u8);
  EXPECT_TRUE(equal(cross_entropy(scores, narrow), cross_entropy(scores, target)));
  EXPECT_TRUE(equal(nll_loss(scores, narrow), nll_loss(scores, target)));
  const LossOptions ignoring = {.ignore_index = 255};
  EXPECT_TRUE(equal(cross_entropy(scores, tensor({2, 255}).to(DType::u8), ignoring),
                    cross_entropy(scores, tensor({2, 255}), ignoring)));
  expect_refused([&] { cross_entropy(scores, target.to(DType::i32)); }, "i64 or u8 targets");
}

TEST(RowsTest, CrossEntropyHasTheRightGradientOnEveryLayout) {
  for (const Reduction reduction : {Reduction::none, Reduction::mean, Reduction::sum}) {
    const Function function = [reduction](const Tensor& x) {
      return cross_entropy(x, targets_like(x, {2, 0, -100, 1, 2}), {.reduction = reduction});
    };
    expect_gradient_right(function, {5, 3});
    expect_right_on_meshes(function, {5, 3});
  }
}

/// A whole tensor on the mesh of another one, as it is there.
Tensor beside(const Tensor& x, const Tensor& whole, const Placement& placement) {
  if (!x.is_distributed()) return whole;
  return distribute_tensor(whole, x.device_mesh(), Placements(x.placements().size(), placement),
                           {.source_rank = -1});
}

TEST(RowsTest, LossesTakeWeightsSmoothingAndMoreDims) {
  const Tensor weight = tensor_from(std::vector<double>{0.5, 2, 1.25}, {3}, DType::f64);
  const Tensor classes =
      tensor_from(std::vector<std::int64_t>{2, 0, -100, 1, 2, 0, 1, 2}, {2, 2, 2}, DType::i64);
  for (const Reduction reduction : {Reduction::none, Reduction::mean, Reduction::sum}) {
    for (const double smoothing : {0.0, 0.25}) {
      for (const bool weighted : {false, true}) {
        const Function function = [&](const Tensor& x) {
          const LossOptions options{.reduction = reduction,
                                    .weight = weighted ? beside(x, weight, Replicate()) : Tensor(),
                                    .label_smoothing = smoothing};
          return cross_entropy(x, beside(x, classes, Shard(0)), options);
        };
        expect_gradient_right(function, {2, 3, 2, 2});
        if (weighted) expect_right_on_meshes(function, {2, 3, 2, 2});
      }
    }
    const Function nll = [&](const Tensor& x) {
      return nll_loss(x, beside(x, classes, Replicate()),
                      {.reduction = reduction, .weight = beside(x, weight, Shard(0))});
    };
    expect_gradient_right(nll, {2, 3, 2, 2});
    expect_right_on_meshes(nll, {2, 3, 2, 2});
  }
}

TEST(RowsTest, ScoresWhoseClassesAreCutStayWhereTheyAre) {
  const Tensor whole = randn({5, 42}, {1}, kDoubles);
  const Tensor weight = rand({42}, {.seed = 4}, kDoubles);
  const LossOptions each{.reduction = Reduction::none};
  const Tensor expected = cross_entropy(whole, tensor({41, 0, -100, 30, 12}), each);
  // The last of five ranks has fewer classes, the last of eight none.
  for (const std::vector<int>& shape : {std::vector<int>{2}, {5}, {8}, {2, 2}}) {
    const int world = shape.size() == 1 ? shape[0] : shape[0] * shape[1];
    test::run_ranks(world, [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, shape);
      Placements placements = {Shard(1)};
      if (shape.size() == 2) placements.insert(placements.begin(), Shard(0));
      const Tensor x =
          distribute_tensor(whole, mesh, placements, {.source_rank = -1}).requires_grad_();
      const Tensor classes = targets_like(x, {41, 0, -100, 30, 12});
      const Tensor losses = cross_entropy(x, classes, each);
      EXPECT_TRUE(losses.placements().back().is_partial());
      EXPECT_EQ(difference(losses.full_tensor(), expected, {1e-12, 1e-12}), "");
      const auto weighted = [&](const Tensor& scores) {
        return cross_entropy(scores, targets_like(scores, {41, 0, -100, 30, 12}),
                             {.weight = beside(scores, weight, Replicate())});
      };
      const Tensor leaf = whole.detach().requires_grad_();
      weighted(leaf).backward();
      weighted(x).backward();
      EXPECT_EQ(x.grad().placements(), placements);
      EXPECT_EQ(difference(x.grad().full_tensor(), leaf.grad(), {1e-12, 1e-12}), "");
      // And once more.
      const auto slope = [&](const Tensor& scores) {
        return grad({weighted(scores)}, {scores}, {}, {.create_graph = true})[0];
      };
      const Tensor second = grad({sum(square(slope(x)))}, {x})[0];
      EXPECT_EQ(difference(second.full_tensor(), grad({sum(square(slope(leaf)))}, {leaf})[0],
                           {1e-12, 1e-12}),
                "");
      // Where rows are cut a rank sees its own ones.
      if (shape.size() > 1) return;
      expect_refused(
          [&] {
            cross_entropy(x, targets_like(x, {6, 0, 42, 3, 2}));
          },
          "row 2 has class 42");
    });
  }
}

TEST(RowsTest, InfiniteScoresWhoseClassesAreCutGiveWhatWholeRowsGive) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const Tensor whole = tensor_from(std::vector<double>{1, kInfinite, 2, -kInfinite, -kInfinite,
                                                       -kInfinite, 0, 1, 2, -kInfinite, 1, 2},
                                   {4, 3}, DType::f64);
  const std::vector<std::int64_t> classes = {0, 2, 1, 2};
  const LossOptions each{.reduction = Reduction::none};
  const Tensor leaf = whole.detach().requires_grad_();
  const Tensor expected = cross_entropy(leaf, targets_like(leaf, classes), each);
  const Tensor slopes = grad({sum(expected)}, {leaf})[0];
  for (std::int64_t row = 0; row < 4; ++row) {
    EXPECT_EQ(isnan(expected.detach()).select(0, row).item(), row < 2);
    EXPECT_EQ(sum(isnan(slopes).select(0, row)).item(), row < 2 ? 3 : 0);
  }
  for (const int world : {2, 3}) {
    test::run_ranks(world, [&](const ProcessGroup& group) {
      const Tensor x =
          distribute_tensor(whole, DeviceMesh(group, {world}), {Shard(1)}, {.source_rank = -1})
              .requires_grad_();
      const Tensor losses = cross_entropy(x, targets_like(x, classes), each);
      EXPECT_EQ(difference(losses.full_tensor(), expected, {1e-12, 1e-12}), "");
      const Tensor once = grad({sum(losses)}, {x}, {}, {.retain_graph = true})[0];
      EXPECT_EQ(difference(once.full_tensor(), slopes, {1e-12, 1e-12}), "");
      const Tensor graphed = grad({sum(losses)}, {x}, {}, {.create_graph = true})[0];
      EXPECT_EQ(difference(graphed.full_tensor(), slopes, {1e-12, 1e-12}), "");
    });
  }
}

TEST(RowsTest, TargetsMayBeProbabilities) {
  const Tensor target = softmax(randn({4, 3}, {5}, kDoubles), 1);
  const Tensor weight = tensor_from(std::vector<double>{0.5, 2, 1.25}, {3}, DType::f64);
  for (const Reduction reduction : {Reduction::none, Reduction::mean, Reduction::sum}) {
    const Function function = [&](const Tensor& x) {
      return cross_entropy(
          x, beside(x, target, Shard(1)),
          {.reduction = reduction, .weight = beside(x, weight, Shard(0)), .label_smoothing = 0.1});
    };
    expect_gradient_right(function, {4, 3});
    expect_right_on_meshes(function, {4, 3});
  }
  // Sums over many classes are beyond f16.
  const Tensor many = zeros({1, 30000}, {.dtype = DType::f16});
  EXPECT_NEAR(cross_entropy(many, tensor({3}), {.label_smoothing = 0.5}).item(), 10.31, 0.01);
  EXPECT_NEAR(cross_entropy(many, full({1, 30000}, 1.0 / 30000)).item(), 10.31, 0.01);
  // Probabilities of 1 are what classes are.
  const Tensor x = randn({2, 3}, {1}, kDoubles);
  const Tensor certain = tensor_from(std::vector<double>{0, 0, 1, 1, 0, 0}, {2, 3}, DType::f64);
  EXPECT_EQ(difference(cross_entropy(x, certain), cross_entropy(x, tensor({2, 0})), {1e-15, 0}),
            "");
}

TEST(RowsTest, NormsHaveTheRightGradientsOnEveryLayout) {
  const Tensor x = randn({3, 4, 2}, {1}, kDoubles);
  const Tensor weight = randn({4, 2}, {2}, kDoubles), bias = randn({4, 2}, {3}, kDoubles);
  const Function of_x = [&](const Tensor& a) {
    return layer_norm(a, {4, 2}, beside(a, weight, Shard(0)), beside(a, bias, Replicate()));
  };
  const Function of_weight = [&](const Tensor& w) {
    return layer_norm(beside(w, x, Shard(0)), {4, 2}, w, beside(w, bias, Shard(1)));
  };
  const Function of_bias = [&](const Tensor& b) {
    return layer_norm(beside(b, x, Shard(0)), {4, 2}, beside(b, weight, Replicate()), b);
  };
  const Function rms_of_x = [&](const Tensor& a) {
    return rms_norm(a, {2}, beside(a, weight.select(0, 1), Replicate()));
  };
  const Function rms_of_weight = [&](const Tensor& w) {
    return rms_norm(beside(w, x, Shard(0)), {4, 2}, w);
  };
  for (const auto& [function, at] : {std::pair{of_x, x},
                                     {of_weight, weight},
                                     {of_bias, bias},
                                     {rms_of_x, x},
                                     {rms_of_weight, weight}}) {
    expect_gradient_right(function, at);
    expect_right_on_meshes(function, at);
  }
  const Function bare = [](const Tensor& a) { return layer_norm(a, {2}) + rms_norm(a, {2}); };
  expect_gradient_right(bare, x);
  const Function biased = [&](const Tensor& b) { return layer_norm(x, {2}, {}, b); };
  expect_gradient_right(biased, {2});
}

TEST(RowsTest, GradientsOfNormsOfHalfTypesHaveTheirDTypes) {
  const Tensor x = randn({4, 6}, {1}, {.dtype = DType::bf16}).requires_grad_();
  const Tensor weight = ones({6}).requires_grad_();
  const Tensor bias = zeros({6}, {.dtype = DType::bf16}).requires_grad_();
  layer_norm(x, {6}, weight, bias).sum().backward();
  EXPECT_EQ(x.grad().dtype(), DType::bf16);
  EXPECT_EQ(weight.grad().dtype(), DType::f32);
  EXPECT_EQ(bias.grad().to_vector(), std::vector<double>(6, 4));
}

TEST(RowsTest, NormsOfCutRowsStayCut) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor x = distribute_tensor(randn({4, 6}, {1}), mesh, {Shard(0)}, {.source_rank = -1});
    EXPECT_EQ(placements_to_string(layer_norm(x, {6}).placements()), "[S(0)]");
    const Tensor cut = distribute_tensor(randn({4, 6}, {1}), mesh, {Shard(1)}, {.source_rank = -1});
    const Tensor weight = distribute_tensor(ones({6}), mesh, {Shard(0)}, {.source_rank = -1});
    EXPECT_EQ(difference(rms_norm(cut, {6}, weight).full_tensor(),
                         rms_norm(randn({4, 6}, {1}), {6}), {1e-6, 0}),
              "");
  });
}

struct ConvCase {
  Shape input, weight;
  ConvOptions options;
};
const std::vector<ConvCase>& conv_cases() {
  static const std::vector<ConvCase> kCases = {
      {{3, 2, 4, 5}, {3, 2, 3, 2}, {.padding = {1, 0}}},
      {{2, 3, 5, 4}, {2, 3, 2, 2}, {.stride = {2, 1}, .padding = {2, 1}, .dilation = {2, 2}}},
      {{2, 4, 3, 3}, {6, 2, 2, 2}, {.stride = 2, .padding = 1, .groups = 2}},
      {{2, 3, 2, 2}, {4, 3, 1, 1}, {}}};
  return kCases;
}

TEST(RowsTest, SecondDerivativesAreRight) {
  const Shape shape = {3, 4};
  const Tensor weight = randn({4}, {2}, kDoubles), bias = randn({4}, {3}, kDoubles);
  const Tensor x = randn(shape, {1}, kDoubles);
  const Tensor classes = tensor({3, -100, 1});
  for (const Function& function : std::vector<Function>{
           [](const Tensor& a) { return softmax(a, 1); },
           [](const Tensor& a) { return log_softmax(a, 1); },
           [&](const Tensor& a) { return layer_norm(a, {4}, weight, bias); },
           [&](const Tensor& a) { return rms_norm(a, {4}, weight); },
           [&](const Tensor& a) { return cross_entropy(a, classes); },
           [&](const Tensor& a) { return nll_loss(a * a, classes, {.weight = weight}); }}) {
    expect_second_derivative_right(function, randn(shape, {1}, kDoubles));
  }
  for (const ConvCase& item : conv_cases()) {
    const Tensor images = randn(item.input, {1}, kDoubles);
    const Tensor windows = randn(item.weight, {2}, kDoubles);
    // Squares, so that the gradients of both depend on both.
    const Function of_images = [&](const Tensor& a) {
      return conv2d(a * a, windows, {}, item.options);
    };
    const Function of_windows = [&](const Tensor& w) {
      return square(conv2d(images, w, {}, item.options)) * 0.1;
    };
    expect_second_derivative_right(of_images, images);
    expect_second_derivative_right(of_windows, windows);
  }
  const Function of_weight = [&](const Tensor& w) { return layer_norm(x * w, {4}, w, w); };
  expect_second_derivative_right(of_weight, randn({4}, {1}, kDoubles));
}

/// Attention of the first argument as query, key or value: [2, 4, 3, 2] each.
Function attention_of(int which, const AttentionOptions& options, std::int64_t heads = 4) {
  return [which, options, heads](const Tensor& x) {
    Tensors inputs;
    for (int i = 0; i < 3; ++i) {
      const Shape shape = {2, i == 0 ? 4 : heads, i == 0 ? 3 : 5, 2};
      const Tensor whole = randn(shape, {static_cast<std::uint64_t>(10 + i)}, kDoubles);
      inputs.push_back(i == which ? x : beside(x, whole, i == 2 ? Shard(1) : Shard(0)));
    }
    AttentionOptions here = options;
    if (here.attn_mask.defined()) here.attn_mask = beside(x, here.attn_mask, Replicate());
    return scaled_dot_product_attention(inputs[0], inputs[1], inputs[2], here);
  };
}

TEST(RowsTest, AttentionHasTheRightGradientsOnEveryLayout) {
  // The second query sees nothing.
  const Tensor mask =
      tensor_from(std::vector<std::int64_t>{1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1}, {3, 5},
                  DType::boolean);
  const Tensor bias = randn({4, 3, 5}, {3}, kDoubles);
  for (const AttentionOptions& options :
       {AttentionOptions{}, AttentionOptions{.is_causal = true},
        AttentionOptions{.attn_mask = mask}, AttentionOptions{.attn_mask = bias, .scale = 0.25}}) {
    for (const int which : {0, 1, 2}) {
      const Function function = attention_of(which, options);
      const Shape shape = which == 0 ? Shape{2, 4, 3, 2} : Shape{2, 4, 5, 2};
      expect_gradient_right(function, shape);
      expect_right_on_meshes(function, shape);
    }
  }
  for (const int which : {0, 1, 2}) {
    const Function of_squares = [which](const Tensor& x) {
      return attention_of(which, {.is_causal = true})(x * x);
    };
    expect_second_derivative_right(of_squares, randn({2, 4, which == 0 ? 3 : 5, 2}, {1}, kDoubles));
  }
  const Tensor blind = attention_of(0, {.attn_mask = mask})(randn({2, 4, 3, 2}, {1}, kDoubles));
  EXPECT_EQ(sum(abs(blind.select(2, 1))).item(), 0);
}

TEST(RowsTest, HeadsOfQueriesMayShareAHeadOfKeys) {
  const Tensor bias = randn({4, 3, 5}, {3}, kDoubles);
  for (const AttentionOptions& options :
       {AttentionOptions{.enable_gqa = true},
        AttentionOptions{.is_causal = true, .enable_gqa = true},
        AttentionOptions{.attn_mask = bias, .enable_gqa = true}}) {
    for (const int which : {0, 1, 2}) {
      const Function function = attention_of(which, options, 2);
      const Shape shape = which == 0 ? Shape{2, 4, 3, 2} : Shape{2, 2, 5, 2};
      expect_gradient_right(function, shape);
      expect_right_on_meshes(function, shape);
    }
  }
  // As if each head of keys stood twice.
  const Tensor query = randn({4, 3, 2}, {1}, kDoubles), key = randn({2, 5, 2}, {2}, kDoubles);
  const Tensor twice =
      stack({key.select(0, 0), key.select(0, 0), key.select(0, 1), key.select(0, 1)});
  EXPECT_EQ(difference(scaled_dot_product_attention(query, key, key, {.enable_gqa = true}),
                       scaled_dot_product_attention(query, twice, twice), {1e-14, 1e-14}),
            "");
}

TEST(RowsTest, AttentionShardedOverHeadsStaysSo) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor x =
        distribute_tensor(randn({2, 4, 3, 2}, {1}), mesh, {Shard(1)}, {.source_rank = -1});
    const Tensor result = scaled_dot_product_attention(x, x, x, {.is_causal = true});
    EXPECT_EQ(placements_to_string(result.placements()), "[S(1)]");
  });
}

TEST(RowsTest, AttentionOfCutQueriesStaysSo) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor whole = randn({2, 5, 3}, {1}, kDoubles).requires_grad_();
    const Tensor part =
        distribute_tensor(whole.detach(), mesh, {Shard(1)}, {.source_rank = -1}).requires_grad_();
    const Tensor keys = distribute_tensor(whole.detach(), mesh, {Replicate()}, {.source_rank = -1})
                            .requires_grad_();
    const Tensor result = scaled_dot_product_attention(part, keys, keys, {.is_causal = true});
    EXPECT_EQ(placements_to_string(result.placements()), "[S(1)]");
    sum(square(result)).backward();
    EXPECT_EQ(placements_to_string(part.grad().placements()), "[S(1)]");
    const Tensor alone = whole.detach().requires_grad_();
    sum(square(scaled_dot_product_attention(whole, alone, alone, {.is_causal = true}))).backward();
    EXPECT_EQ(difference(part.grad().full_tensor(), whole.grad(), {1e-13, 1e-13}), "");
    EXPECT_EQ(difference(keys.grad().full_tensor(), alone.grad(), {1e-13, 1e-13}), "");
  });
}

TEST(RowsTest, AttentionOfWhatDoesNotFitIsRefused) {
  const Tensor x = randn({2, 3, 4}, {1});
  const auto attend = [](const Tensor& q, const Tensor& k, const Tensor& v,
                         const AttentionOptions& options = {}) {
    return [=] { scaled_dot_product_attention(q, k, v, options); };
  };
  expect_refused(attend(x, randn({2, 3, 5}, {1}), x), "queries and keys differ in length");
  expect_refused(attend(x, x, randn({2, 2, 4}, {1})), "each key has one value");
  expect_refused(attend(x, x, x.to(DType::f64)), "one floating point dtype");
  expect_refused(attend(x, x, ones({4})), "two dims");
  expect_refused(attend(x, x, x, {.attn_mask = ones({3, 3}), .is_causal = true}), "is_causal");
  expect_refused(attend(randn({3, 3, 4}, {1}), x, x, {.enable_gqa = true}), "a multiple");
}

TEST(RowsTest, ConvolutionHasTheRightGradientsOnEveryLayout) {
  for (const ConvCase& item : conv_cases()) {
    const Tensor images = randn(item.input, {1}, kDoubles);
    const Tensor weight = randn(item.weight, {2}, kDoubles);
    const Tensor bias = randn({item.weight[0]}, {3}, kDoubles);
    const Function of_images = [&](const Tensor& x) {
      return conv2d(x, beside(x, weight, Shard(0)), beside(x, bias, Shard(0)), item.options);
    };
    const Function of_weight = [&](const Tensor& w) {
      return conv2d(beside(w, images, Shard(0)), w, beside(w, bias, Replicate()), item.options);
    };
    const Function of_bias = [&](const Tensor& b) {
      return conv2d(beside(b, images, Shard(1)), beside(b, weight, Replicate()), b, item.options);
    };
    for (const auto& [function, at] :
         {std::pair{of_images, images}, {of_weight, weight}, {of_bias, bias}}) {
      expect_gradient_right(function, at);
      expect_right_on_meshes(function, at);
    }
  }
}

TEST(RowsTest, ConvolutionIsCutOverSamplesOrOutputs) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const auto placed = [&](const Shape& shape, const Placement& placement) {
      return distribute_tensor(randn(shape, {1}), mesh, {placement}, {.source_rank = -1});
    };
    const Tensor samples = placed({4, 2, 5, 5}, Shard(0)),
                 images = placed({4, 2, 5, 5}, Replicate());
    const Tensor weight = placed({6, 2, 3, 3}, Replicate()),
                 outputs = placed({6, 2, 3, 3}, Shard(0));
    EXPECT_EQ(placements_to_string(conv2d(samples, weight, placed({6}, Replicate())).placements()),
              "[S(0)]");
    EXPECT_EQ(placements_to_string(conv2d(images, outputs, placed({6}, Shard(0))).placements()),
              "[S(1)]");
  });
}

TEST(RowsTest, ConvolutionOfWhatDoesNotFitIsRefused) {
  const Tensor x = randn({2, 4, 3, 3}, {1}), w = randn({2, 4, 2, 2}, {2});
  expect_refused([&] { conv2d(x, randn({2, 3, 2, 2}, {1})); }, "the channels do not meet");
  expect_refused([&] { conv2d(x, w, {}, {.groups = 3}); }, "the channels do not meet");
  expect_refused([&] { conv2d(x, randn({2, 4, 4, 4}, {1})); }, "larger than the padded images");
  expect_refused([&] { conv2d(x, w, {}, {.stride = 0}); }, "stride");
  expect_refused([&] { conv2d(x, w, ones({3})); }, "a number for each output channel");
  expect_refused([&] { conv2d(x, w.to(DType::f64)); }, "one floating point dtype");
  expect_refused([&] { conv2d(x.to(DType::i64), w.to(DType::i64)); }, "one floating point dtype");
  expect_refused([&] { conv2d(x, ones({2, 4})); }, "height, width");
  EXPECT_EQ(conv2d(x.select(0, 0), w).shape(), (Shape{2, 2, 2}));
}

TEST(RowsTest, LinearIsAProductAndABias) {
  const Tensor weight = randn({3, 4}, {2}, kDoubles), bias = randn({3}, {3}, kDoubles);
  const Function function = [&](const Tensor& x) {
    if (!x.is_distributed()) return linear(x, weight, bias);
    const auto on_mesh = [&](const Tensor& whole) {
      return distribute_tensor(whole, x.device_mesh(), Placements(x.placements().size(), Shard(0)),
                               {.source_rank = -1});
    };
    return linear(x, on_mesh(weight), on_mesh(bias));
  };
  expect_gradient_right(function, {5, 4});
  expect_right_on_meshes(function, {5, 4});
}

TEST(RowsTest, WhatIsNoRowOrNoClassIsRefused) {
  const Tensor scores = randn({2, 3}, {1});
  expect_refused([&] { softmax(scores, 2); }, "dim 2 is out of range");
  expect_refused([&] { softmax(arange(3), 0); }, "softmax");
  expect_refused([&] { cross_entropy(scores, tensor({0, 3})); }, "3");
  expect_refused([] { cross_entropy(zeros({2, 0}), tensor({0, 0})); }, "row 0 has class 0");
  expect_refused([&] { layer_norm(scores, {3}, ones({3}, {.dtype = DType::f64})); },
                 "a weight or bias of float64");
  EXPECT_EQ(layer_norm(scores.to(DType::bf16), {3}, ones({3})).dtype(), DType::bf16);
  expect_refused([&] { cross_entropy(scores, tensor({0.0, 1.0})); }, "cross_entropy");
  expect_refused([&] { cross_entropy(scores, tensor({0, 1, 2})); }, "cross_entropy");
  expect_refused([&] { nll_loss(scores, tensor({0, 3})); }, "row 1 has class 3");
  expect_refused([&] { nll_loss(scores, tensor({0, 1}), {.label_smoothing = 0.5}); }, "smoothing");
  expect_refused(
      [&] {
        cross_entropy(scores, tensor({0, 1}), {.weight = ones({2})});
      },
      "there are 3 classes");
  expect_refused(
      [&] {
        cross_entropy(scores, tensor({0, 1}), {.label_smoothing = 2});
      },
      "between 0 and 1");
  expect_refused([&] { layer_norm(scores, {2}); }, "its last dims are others");
  expect_refused([&] { rms_norm(scores, {3}, ones({2})); }, "with a weight or bias of shape");
  expect_refused([&] { layer_norm(arange(3), {3}); }, "floating point");
}

}  // namespace
}  // namespace dtrun::dtensor
