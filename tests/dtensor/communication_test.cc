// What is sent: counted, predicted, forbidden, and named where ranks disagree.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>

#include "dtensor/carried_bytes.h"
#include "dtensor/gradient_check.h"
#include "dtensor/known_counts.h"
#include "dtensor/layout_catalogue.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/autograd/pending_tensor.h"
#include "dtrun/dtensor/move/comm_counter.h"
#include "dtrun/dtensor/move/strict_scope.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/explain.h"
#include "dtrun/dtensor/ops/index.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/dtensor/ops/rows.h"
#include "dtrun/dtensor/plan/traffic.h"
#include "layout/mesh_coordinate.h"
#include "mesh/mesh_body.h"
#include "support/one_in.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using collectives::ProcessGroup;
using tensors::DType;
using tensors::Shape;

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Tensor whole(const Shape& shape) {
  return Tensor(tensors::arange(tensors::numel(shape), {.dtype = DType::f32})).view(shape);
}

/// @return how many exchanges there were
int expect_predicted(const DeviceMesh& mesh, const Shape& shape) {
  int exchanges = 0;
  const std::vector<Layout> layouts = all_layouts(shape, mesh.shape(), {ReduceOp::sum});
  const std::vector<LinkRate>& links = mesh.body()->links;
  for (const Layout& from : layouts) {
    const Tensor x = distribute_tensor(whole(shape), mesh, from.placements(),
                                       {.source_rank = -1, .shard_order = from.order()});
    for (const Layout& to : layouts) {
      const CommCounter counter;
      x.redistribute(to.placements(), to.order());
      const std::vector<Step> steps = plan_redistribute(shape, mesh.shape(), from, to, {4, links});
      CommCounts predicted;
      const std::vector<Traffic> traffic =
          plan_traffic(shape, mesh.shape(), steps, mesh.coordinate(), 4);
      for (std::size_t i = 0; i < steps.size(); ++i) {
        if (!is_collective(steps[i].kind)) continue;
        const bool is_exchange = steps[i].kind == StepKind::exchange;
        exchanges += is_exchange ? 1 : 0;
        predicted[is_exchange ? "all_to_all" : step_kind_name(steps[i].kind)] +=
            {1, traffic[i].sent};
      }
      EXPECT_EQ(counter.by_collective(), predicted) << from.to_string() << " " << to.to_string();
    }
  }
  return exchanges;
}

TEST(CommunicationTest, EveryRedistributionSendsJustTheBytesThatArePredicted) {
  for (const std::vector<int>& mesh : std::vector<std::vector<int>>{{1}, {3}, {4}}) {
    test::run_ranks(mesh[0], [&](const ProcessGroup& group) {
      for (const Shape& shape : {Shape{5}, Shape{7, 3}, Shape{1, 8}, Shape{0, 4}}) {
        expect_predicted(DeviceMesh(group, mesh), shape);
      }
    });
  }
  test::run_ranks(6, [&](const ProcessGroup& group) {
    EXPECT_GT(expect_predicted(DeviceMesh(group, {3, 2}), {7, 5}), 0);
    // Of some kilobytes, where bytes begin to count.
    EXPECT_GT(expect_predicted(DeviceMesh(group, {3, 2}), {70, 51}), 10);
  });
}

TEST(CommunicationTest, MovesTakeAsManyCollectivesAsAreKnown) {
  for (const int axes : {1, 2, 3}) {
    test::run_ranks(1 << axes, [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, std::vector<int>(static_cast<std::size_t>(axes), 2));
      for (const KnownCount& known : kKnownCounts) {
        if (known.mesh() != mesh.shape()) continue;
        for (const Shape& shape : kShapesOfKnownCounts) {
          if (!known.fits(shape.size())) continue;
          const Tensor x = distribute_tensor(whole(shape), mesh, known_placements(known.from),
                                             {.source_rank = -1});
          const CommCounter counter;
          x.redistribute(known_placements(known.to));
          EXPECT_EQ(counter.get_total_counts(), known.here)
              << known.from << " -> " << known.to << " " << tensors::shape_to_string(shape);
        }
      }
    });
  }
}

struct Carried {
  std::map<StepKind, int> steps;  ///< how many there were
  int others = 0;                 ///< moves for which more or less is carried than is needed
};

/// Moves one of so many pairs of layouts.
void carry(const DeviceMesh& mesh, const Shape& shape, std::size_t one_pair_in, Carried& carried) {
  const std::vector<Layout> layouts = all_layouts(shape, mesh.shape(), {ReduceOp::sum});
  for (std::size_t pair = 0; pair < layouts.size() * layouts.size(); pair += one_pair_in) {
    const Layout &from = layouts[pair / layouts.size()], &to = layouts[pair % layouts.size()];
    const Tensor x = distribute_tensor(whole(shape), mesh, from.placements(),
                                       {.source_rank = -1, .shard_order = from.order()});
    const PlanExplanation told = explain(x, to.placements(), to.order());
    ASSERT_TRUE(told.carried);
    const std::int64_t before = bytes_carried(mesh);
    x.redistribute(to.placements(), to.order());
    EXPECT_EQ(bytes_carried(mesh) - before, *told.carried)
        << tensors::shape_to_string(shape) << "\n"
        << told.to_string();
    carried.others += *told.carried != told.chosen.traffic.sent;
    for (const Step& step : told.chosen.plan()) ++carried.steps[step.kind];
  }
}

/// What explain() tells of each rank's bytes is what its transports count.
/// @return of all ranks, for how many moves that is not what the others need
int expect_carried_on(const std::vector<int>& mesh_shape, const std::vector<Shape>& shapes,
                      std::size_t one_pair_in, const test::RankOptions& options) {
  int world = 1;
  for (const int size : mesh_shape) world *= size;
  std::atomic<int> others = 0;
  test::run_ranks(world, options, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, mesh_shape);
    Carried carried;
    for (const Shape& shape : shapes) carry(mesh, shape, one_pair_in, carried);
    others += carried.others;
    for (const StepKind kind : {StepKind::all_gather, StepKind::all_to_all, StepKind::all_reduce,
                                StepKind::reduce_scatter})
      EXPECT_GT(carried.steps[kind], 0) << step_kind_name(kind);
    EXPECT_EQ(carried.steps[StepKind::exchange] > 0, mesh_shape.size() > 1);
  });
  return others;
}

/// Even, uneven and empty shards; parts below and above 16 KiB.
const std::vector<Shape> kCarriedShapes = {{5, 8}, {7, 3}, {1, 8}, {0, 4}, {70, 51}, {250, 131}};

/// Lines, a grid and a cube.
void expect_carried_over(collectives::Transport transport) {
  const test::RankOptions options{.transport = transport};
  const std::size_t one_in = testing_support::one_in(5);
  EXPECT_EQ(expect_carried_on({2}, kCarriedShapes, 1, options), 0);
  EXPECT_GT(expect_carried_on({3}, kCarriedShapes, 1, options), 0);
  EXPECT_GT(expect_carried_on({4}, kCarriedShapes, 1, options), 0);
  EXPECT_GT(expect_carried_on({8}, {{7, 3}, {250, 131}}, 1, options), 0);
  expect_carried_on({3, 2}, kCarriedShapes, one_in, options);
  expect_carried_on({2, 2, 2}, {{7, 3}, {70, 51}}, 7 * one_in, options);
}

TEST(CommunicationTest, SharedMemoryCarriesJustTheBytesThatArePredictedForEachRank) {
  expect_carried_over(collectives::Transport::automatic);
}

TEST(CommunicationTest, TcpCarriesJustTheBytesThatArePredictedForEachRank) {
  expect_carried_over(collectives::Transport::tcp);
}

// They pass on what others have sent: that, too, is predicted. Above 128 KiB they go by machines.
TEST(CommunicationTest, BetweenMachinesRanksCarryJustTheBytesThatArePredicted) {
  const std::vector<Shape> shapes = {{5, 8}, {70, 51}, {250, 531}};
  for (const std::vector<int>& machines :
       std::vector<std::vector<int>>{{2, 2}, {3, 1}, {1, 1, 2}}) {
    EXPECT_GT(expect_carried_on({4}, shapes, 1, {.machines = machines}), 0);
    expect_carried_on({2, 2}, shapes, 5, {.machines = machines});
  }
}

TEST(CommunicationTest, AnOperatorsCommunicationIsCountedUnderItsName) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor a = distribute_tensor(whole({4, 6}), mesh, {Shard(1)});
    const Tensor b = distribute_tensor(whole({4, 6}), mesh, {Shard(0)});
    const CommCounter counter;
    {
      const CommSection layer("layer");
      const CommSection inner("add");
      a.add(b);
    }
    EXPECT_EQ(counter.get_total_counts(), 1);
    EXPECT_EQ(counter.by_operator().at("add"), (CommCounts{{"all_to_all", {1, 24}}}));
    EXPECT_EQ(counter.by_section().count("layer.add"), 1U);
    a.full_tensor();
    EXPECT_EQ(counter.by_operator().at("full_tensor"), (CommCounts{{"all_gather", {1, 48}}}));
    LocalTensor own = tensors::ones({3}, {.dtype = DType::f64});
    group.all_reduce(own);
    EXPECT_EQ(counter.by_operator().at(""), (CommCounts{{"all_reduce", {1, 24}}}));
    EXPECT_EQ(counter.get_comm_counts(),
              (std::map<std::string, std::int64_t>{
                  {"all_gather", 1}, {"all_reduce", 1}, {"all_to_all", 1}}));
    EXPECT_EQ(counter.get_total_bytes(), 24 + 48 + 24);
    EXPECT_EQ(counter.to_string(), R"(section    for             collective  calls  bytes sent
-          a group's call  all_reduce      1          24
-          full_tensor     all_gather      1          48
layer.add  add             all_to_all      1          24
total                                      3          96
)");
    EXPECT_EQ(
        counter.to_json(),
        R"({"counts":[{"section":"","for":"","pass":"forward","collective":"all_reduce","calls":1,"bytes_sent":24},)"
        R"({"section":"","for":"full_tensor","pass":"forward","collective":"all_gather","calls":1,"bytes_sent":48},)"
        R"({"section":"layer.add","for":"add","pass":"forward","collective":"all_to_all","calls":1,"bytes_sent":24}],)"
        R"("calls":3,"bytes_sent":96})");
  });
}

// Also where what moves is moved before the operator runs.
TEST(CommunicationTest, LinesThatAreBroughtAreCountedUnderTheOperatorsName) {
  const std::map<std::string, std::function<void(const Tensor&)>> calls = {
      {"split", [](const Tensor& x) { split(x, 2, 0); }},
      {"sort", [](const Tensor& x) { sort(x, 0); }},
      {"topk", [](const Tensor& x) { topk(x, 3, 0); }},
      {"flip", [](const Tensor& x) { flip(x, {0}); }},
      {"roll", [](const Tensor& x) { roll(x, {1}, {0}); }}};
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const Tensor x = distribute_tensor(whole({4, 6}), DeviceMesh(group, {2}), {Shard(0)});
    for (const auto& [name, run] : calls) {
      const CommCounter counter;
      run(x);
      EXPECT_EQ(counter.by_operator().size(), 1U) << counter;
      EXPECT_TRUE(counter.by_operator().contains(name)) << counter;
      const StrictScope strict;
      EXPECT_TRUE(refusal([&] { run(x); }).starts_with(name)) << refusal([&] { run(x); });
    }
  });
}

TEST(CommunicationTest, GradientsAreCountedAsTheWayBack) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor weight = distribute_tensor(whole({6, 2}), mesh, {Replicate()});
    weight.requires_grad_();
    const Tensor x = distribute_tensor(whole({4, 6}), mesh, {Shard(0)});
    const CommCounter counter;
    matmul(x, weight).sum().backward();
    // The weight's gradient is summed over the ranks once; the loss is not needed.
    EXPECT_EQ(counter.get_comm_counts().count("all_reduce"), 1U) << counter;
    EXPECT_EQ(counter.get_total_counts(), 1) << counter;
    EXPECT_EQ(counter.by_operator().count("the gradient's sum, backward"), 1U) << counter;
  });
}

TEST(CommunicationTest, WhatWasReducedOnTheWayThereIsNotReducedAgainOnTheWayBack) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor x = distribute_tensor(whole({4, 6}), mesh, {Partial()}).requires_grad_();
    const CommCounter counter;
    const Tensor y = gelu(x);
    EXPECT_EQ(counter.get_total_counts(), 1) << counter;
    y.sum().backward();
    EXPECT_EQ(counter.get_total_counts(), 1) << counter;
    const Tensor alone = whole({4, 6}).requires_grad_();
    gelu(alone).sum().backward();
    EXPECT_EQ(x.grad().to_vector(), alone.grad().to_vector());
  });
}

struct Counts {
  const char* name;
  std::function<Tensor(const Tensor& x)> function;  ///< of f32[8, 6], on two ranks
  Placement placement;                              ///< of x
  std::int64_t forward, backward;
};

/// A call, and the way back of the sum of what it gives.
void expect_counts(const std::vector<Counts>& all, const DeviceMesh& mesh) {
  for (const Counts& expected : all) {
    SCOPED_TRACE(expected.name);
    const Tensor x =
        distribute_tensor(whole({8, 6}), mesh, {expected.placement}, {.source_rank = -1});
    x.requires_grad_();
    CommCounter counter;
    const Tensor y = expected.function(x);
    EXPECT_EQ(counter.get_total_counts(), expected.forward) << counter;
    const Tensor loss = y.sum();
    counter.reset();
    loss.backward();
    EXPECT_EQ(counter.get_total_counts(), expected.backward) << counter;
    const Tensor alone = whole({8, 6}).requires_grad_();
    const Tensor right = expected.function(alone);
    EXPECT_EQ(difference(y.full_tensor(), right, {1e-6, 1e-6}), "");
    right.sum().backward();
    EXPECT_EQ(difference(x.grad().full_tensor(), alone.grad(), {1e-6, 1e-6}), "");
  }
}

/// As `x` is: local, or whole on all ranks of its mesh and then cut.
Tensor lying_beside(const Tensor& x, const Tensor& other, const Placement& placement) {
  if (!x.is_distributed()) return other;
  return distribute_tensor(other, x.device_mesh(), {placement}, {.source_rank = -1});
}

TEST(CommunicationTest, AnOperatorTakesNoMoreCollectivesThanItNeeds) {
  const Tensor other = whole({8, 6}) * 0.5 + 1;
  const std::vector<Counts> all = {
      {"pieces of a cut dim are gathered once",
       [](const Tensor& x) {
         const Tensors pieces = chunk(x, 4, 0);
         return pieces[0] + pieces[3];
       },
       Shard(0), 1, 0},
      {"a variance's mean comes with it", [](const Tensor& x) { return var(x, {0}); }, Shard(0), 1,
       0},
      {"what has moved is kept as it came",
       [&](const Tensor& x) { return x * lying_beside(x, other, Shard(1)); }, Shard(0), 1, 0},
      {"a small slice of a cut dim is gathered", [](const Tensor& x) { return x.slice(0, 1, 6); },
       Shard(0), 1, 0},
      {"what is joined along a cut dim is gathered",
       [&](const Tensor& x) {
         return cat({x, lying_beside(x, other, Shard(1))}, 1);
       },
       Shard(1), 2, 0},
      {"sort brings its lines once", [](const Tensor& x) { return sort(x, 0).values; }, Shard(0), 1,
       0},
      {"and so does topk of short lines", [](const Tensor& x) { return topk(x, 2, 0).values; },
       Shard(0), 1, 0},
      {"sums of sizes are left to be added", [](const Tensor& x) { return norm(x, 1); }, Shard(0),
       0, 0},
      {"the parts' norms travel", [](const Tensor& x) { return norm(x, 2, {0}); }, Shard(0), 1, 0},
      {"and their logsumexp", [](const Tensor& x) { return logsumexp(x, {0}); }, Shard(0), 1, 0},
      {"a gathered factor would be gathered again",
       [&](const Tensor& x) { return matmul(lying_beside(x, other.t(), Replicate()), x); },
       Shard(0), 0, 0},
      {"targets come once to scores of cut classes",
       [](const Tensor& x) {
         const Tensor classes = remainder(arange(8), 6);
         return cross_entropy(x, lying_beside(x, classes, Shard(0)), {.reduction = Reduction::sum});
       },
       Shard(1), 2, 0},
      {"what is written to a whole tensor is gathered before",
       [&](const Tensor& x) {
         const Tensor target = lying_beside(x, other, Replicate()).clone();
         return target.add_(x * 2);
       },
       Shard(0), 1, 0},
      {"a view of maxima is made of maxima", [](const Tensor& x) { return x.t().clone(); },
       Partial(ReduceOp::max), 0, 0},
      {"of maxima and a number the maxima are left", [](const Tensor& x) { return x.maximum(7.5); },
       Partial(ReduceOp::max), 0, 1},
  };
  test::run_ranks(2,
                  [&](const ProcessGroup& group) { expect_counts(all, DeviceMesh(group, {2})); });
}

// Two ranks have equal shares of a dim of 8 that becomes one of 2, and four would not.
// Where parameters are whole, their gradients are summed: no reason to gather a batch.
TEST(CommunicationTest, ABatchStaysCutInTraining) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const auto parameter = [&](const Shape& shape) {
      return distribute_tensor(ones(shape), mesh, {Replicate()}, {.source_rank = -1})
          .requires_grad_();
    };
    const Tensor weight = parameter({64}), bias = parameter({64}), matrix = parameter({64, 64});
    const Tensor scale = parameter({32, 64});
    const std::vector<std::pair<const char*, std::function<Tensor(const Tensor&)>>> calls = {
        {"slice", [](const Tensor& x) { return x.slice(1, 3, 20); }},
        {"narrow", [](const Tensor& x) { return x.narrow(1, 0, 8); }},
        {"select", [](const Tensor& x) { return x.select(1, 3); }},
        {"view",
         [](const Tensor& x) {
           return x.view({-1, 64});
         }},
        {"cat",
         [](const Tensor& x) {
           return cat({x, x}, 1);
         }},
        {"cat of a parameter",
         [&](const Tensor& x) {
           return cat({x, scale.expand({x.size(0), 32, 64})}, 1);
         }},
        {"split", [](const Tensor& x) { return split(x, 16, 1)[0]; }},
        {"softmax", [](const Tensor& x) { return softmax(x, 2); }},
        {"log_softmax", [](const Tensor& x) { return log_softmax(x, 2); }},
        {"pad",
         [](const Tensor& x) {
           return pad(x, {1, 1});
         }},
        {"mul", [&](const Tensor& x) { return x * weight; }},
        {"mul of a matrix", [&](const Tensor& x) { return x * scale; }},
        {"mul of a parameter as large",
         [&](const Tensor& x) {
           return x * scale.expand({x.size(0), 32, 64}).clone();
         }},
        {"div", [&](const Tensor& x) { return x / weight; }},
        {"layer_norm", [&](const Tensor& x) { return layer_norm(x, {64}, weight, bias); }},
        {"rms_norm", [&](const Tensor& x) { return rms_norm(x, {64}, weight); }},
        {"linear", [&](const Tensor& x) { return linear(x, matrix, bias); }},
    };
    for (const Shape& shape : {Shape{64, 32, 64}, Shape{8, 32, 64}, Shape{2, 32, 64}}) {
      const Tensor x = distribute_tensor(ones(shape), mesh, {Shard(0)}, {.source_rank = -1});
      for (const bool trains : {false, true}) {
        x.requires_grad_(trains);
        for (const auto& [name, run] : calls) {
          EXPECT_EQ(placements_to_string(run(x).placements()), "[S(0)]")
              << name << " of " << tensors::shape_to_string(shape) << (trains ? ", training" : "");
        }
      }
    }
  });
}

// A part that wants a gradient is gathered, which spares the way back a collective.
TEST(CommunicationTest, OfManyOperandsItCountsWhichWantsAGradient) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const auto placed = [&](const Shape& shape, const Placement& placement) {
      return distribute_tensor(ones(shape), mesh, {placement}, {.source_rank = -1});
    };
    for (const int count : {2, 63, 64, 65, 130}) {
      Tensors parts(static_cast<std::size_t>(count), placed({1, 256}, Replicate()));
      // So many rows that what cutting the others takes does not decide.
      parts.front() = placed({60 + 4 * count, 256}, Shard(0));
      EXPECT_EQ(placements_to_string(cat(parts, 0).placements()), "[S(1)]") << count;
      parts.front().requires_grad_();
      EXPECT_EQ(placements_to_string(cat(parts, 0).placements()), "[R]") << count;
    }
  });
}

TEST(CommunicationTest, AViewKeepsACutThatDividesItsDim) {
  test::run_ranks(4, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2});
    for (const Placements& placements :
         {Placements{Replicate(), Shard(0)}, Placements{Shard(0), Shard(1)},
          Placements{Shard(0), Shard(0)}}) {
      const Tensor x = distribute_tensor(whole({8, 6}), mesh, placements, {.source_rank = -1});
      const CommCounter counter;
      const Tensor y = x.view({2, 4, 6});
      const bool is_cut_twice = placements[0] == placements[1];
      EXPECT_EQ(counter.get_total_counts(), is_cut_twice ? 1 : 0) << counter;
      EXPECT_EQ(y.full_tensor().to_vector(), whole({2, 4, 6}).to_vector());
    }
  });
}

TEST(CommunicationTest, WhileNobodyCountsNothingIsNoted) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const Tensor a = distribute_tensor(whole({4, 6}), DeviceMesh(group, {2}), {Shard(1)});
    CommCounter outer;
    {
      const CommCounter inner;
      a.full_tensor();
      EXPECT_EQ(inner.get_total_counts(), 1);
    }
    EXPECT_EQ(outer.get_total_counts(), 1);
    outer.reset();
    EXPECT_EQ(outer.get_total_counts(), 0);
  });
}

TEST(StrictScopeTest, CommunicationThatNobodyAskedForIsNamedWithItsRemedy) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor a = distribute_tensor(whole({4, 6}), mesh, {Shard(1)});
    const Tensor b = distribute_tensor(whole({4, 6}), mesh, {Shard(0)});
    const StrictScope strict;
    const CommCounter counter;
    const std::string text = refusal([&] { a.add(b); });
    EXPECT_TRUE(holds(text, "add would communicate, which nobody asked for")) << text;
    EXPECT_TRUE(holds(text,
                      "argument 1, f32[4, 6] that lies as [S(1)], has to become [S(0)] "
                      "(all_to_all along axis 0)"))
        << text;
    EXPECT_TRUE(holds(text, "redistribute({Shard(0)}) it before")) << text;
    // The three that cost least, of which the first one is what would have been done.
    const std::size_t first = text.find("; add takes [S(0)] and [S(0)] for ");
    ASSERT_NE(first, std::string::npos) << text;
    const std::string named = text.substr(first, text.find('\n', first) - first);
    EXPECT_EQ(std::ranges::count(named, ','), 2) << text;
    EXPECT_TRUE(holds(named, ", [S(1)] and [S(1)] for ")) << text;
    EXPECT_TRUE(holds(named, ", [R] and [R] for ")) << text;
    EXPECT_TRUE(holds(refusal([&] { softmax(a, 1); }), "softmax would communicate"));
    EXPECT_EQ(counter.get_total_counts(), 0);
    // What is asked for, and what each rank does by itself.
    a.add(b.redistribute({Shard(1)}));
    a.add(distribute_tensor(whole({4, 6}), mesh, {Replicate()}));
    EXPECT_EQ(a.full_tensor().to_vector()[7], 7);
  });
}

TEST(StrictScopeTest, BackwardIsAskedFor) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor weight = distribute_tensor(whole({6, 2}), mesh, {Replicate()});
    weight.requires_grad_();
    const Tensor x = distribute_tensor(whole({4, 6}), mesh, {Shard(0)});
    const StrictScope strict;
    matmul(x, weight).sum().backward();
    EXPECT_TRUE(weight.grad().defined());
  });
}

TEST(DisagreementTest, BothLinesAndTheOwnLayoutAreNamed) {
  const int here = __LINE__;
  const auto thrown = test::run_failing_ranks(2, {}, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const bool first = group.rank() == 0;
    const Shape shape = first ? Shape{8, 4} : Shape{8, 6};
    const Tensor x = distribute_tensor(whole(shape), mesh, {Shard(0)}, {.source_rank = -1});
    first ? x.full_tensor() : x.redistribute({Replicate()});
  });
  for (int rank = 0; rank < 2; ++rank) {
    const auto& error = thrown[static_cast<std::size_t>(rank)];
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code, base::ErrorCode::kDisagreement);
    const std::string at = "communication_test.cc:" + std::to_string(here + 6);
    EXPECT_TRUE(holds(error->text, "all_gather #1 (f32 x 32 in parts) at " + at)) << error->text;
    EXPECT_TRUE(holds(error->text, "all_gather #1 (f32 x 48 in parts) at " + at)) << error->text;
    EXPECT_TRUE(holds(error->text, rank == 0
                                       ? "was in full_tensor of f32[8, 4] from [S(0)] to [R]"
                                       : "was in redistribute of f32[8, 6] from [S(0)] to [R]"))
        << error->text;
  }
}

TEST(DisagreementTest, PartsOfUnequalShapeWithoutTheGlobalOneAreToldAsThat) {
  const auto thrown = test::run_failing_ranks(2, {}, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor mine = whole({group.rank() == 0 ? 4 : 3, 4});
    Tensor::from_local(mine, mesh, {Shard(0)}).full_tensor();
  });
  for (int rank = 0; rank < 2; ++rank) {
    const auto& error = thrown[static_cast<std::size_t>(rank)];
    ASSERT_TRUE(error.has_value());
    EXPECT_TRUE(holds(error->text, "from_local was not given the global shape")) << error->text;
    EXPECT_TRUE(holds(error->text, rank == 0 ? "as this rank's [4, 4]" : "as this rank's [3, 4]"))
        << error->text;
    EXPECT_TRUE(holds(error->text, "give from_local the shape, {.shape")) << error->text;
  }
}

TEST(DisagreementTest, AnOperatorIsNamedInPlaceOfALineOfTheLibrary) {
  const auto thrown = test::run_failing_ranks(2, {}, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor x = distribute_tensor(whole({group.rank() == 0 ? 8 : 6, 4}), mesh, {Shard(0)},
                                       {.source_rank = -1});
    const Tensor y = distribute_tensor(whole({group.rank() == 0 ? 8 : 6, 4}), mesh, {Partial()},
                                       {.source_rank = -1});
    y.exp();
    x.exp();
  });
  for (const auto& error : thrown) {
    ASSERT_TRUE(error.has_value());
    EXPECT_TRUE(holds(error->text, " at exp")) << error->text;
    EXPECT_FALSE(holds(error->text, "redistribute.cc")) << error->text;
  }
}

}  // namespace
}  // namespace dtrun::dtensor
