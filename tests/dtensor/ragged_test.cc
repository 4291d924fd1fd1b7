// Ragged shards: a size per rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <map>
#include <optional>
#include <utility>

#include "dtensor/catalogue.h"
#include "dtensor/ragged_catalogue.h"
#include "dtensor/refusal.h"
#include "dtensor/vector_tensor.h"
#include "dtrun/dtensor/move/comm_counter.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/explain.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "support/one_in.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

using collectives::ProcessGroup;
using tensors::Shape;
using testing_support::one_in;

bool any_partial(const Layout& layout) {
  return std::ranges::any_of(layout.placements(),
                             [](const Placement& placement) { return placement.is_partial(); });
}

void expect_is(const DTensor& tensor, const LocalTensor& global) {
  if (any_partial(tensor.spec().layout()))
    EXPECT_EQ(difference(tensor.full_tensor(), global, {0, 0}), "");
  else
    EXPECT_EQ(difference(tensor.to_local(), cut(global, tensor.spec().local_box()), {0, 0}), "");
}

void expect_pairs_right(const std::vector<int>& mesh_shape, const Shape& shape, std::size_t cuts,
                        const Placements& others) {
  int world = 1;
  for (const int size : mesh_shape) world *= size;
  const RaggedLayouts all = ragged_layouts(shape, mesh_shape, cuts, others);
  Catalogue catalogue{shape, all.layouts, {}};
  PlanSimulator simulator(shape, mesh_shape);
  for (const Layout& layout : catalogue.layouts) {
    simulator.fill(global_tensor(shape).to_vector(), layout);
    std::vector<std::vector<double>>& locals = catalogue.locals.emplace_back();
    for (int rank = 0; rank < world; ++rank) locals.push_back(simulator.local_of(rank));
  }
  test::run_ranks(world, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, mesh_shape);
    const LocalTensor global = global_tensor(shape);
    std::size_t pairs = 0;
    for (std::size_t i = 0; i < catalogue.layouts.size(); ++i) {
      const DTensor from = placed(catalogue, i, mesh);
      for (const Layout& to : catalogue.layouts) {
        if (pairs++ % one_in(7) != 0) continue;
        SCOPED_TRACE(from.spec().to_string() + " -> " + to.to_string());
        const DTensor there = from.redistribute(to.placements(), to.order());
        EXPECT_EQ(there.spec().layout(), to);
        expect_is(there, global);
      }
    }
  });
}

TEST(RaggedTest, EveryPairOfLayoutsOnOneAxisKeepsTheValue) {
  const Placements others = {Replicate(), Partial(), Partial(ReduceOp::max)};
  for (const int size : {1, 2, 3, 4, 5}) {
    for (const Shape& shape : std::vector<Shape>{{7}, {8, 3}, {0, 5}, {1, 9}})
      expect_pairs_right({size}, shape, 3, others);
  }
}

TEST(RaggedTest, EveryPairOfLayoutsOnTwoAxesKeepsTheValue) {
  expect_pairs_right({2, 3}, {7, 5}, 1, {Replicate(), Partial()});
  expect_pairs_right({2, 2}, {6}, 3, {Replicate(), Partial()});
  expect_pairs_right({3, 2}, {70, 1025}, 1, {Replicate()});
}

TEST(RaggedTest, EveryPairOfLayoutsOnThreeAxesKeepsTheValue) {
  expect_pairs_right({2, 2, 2}, {9}, 1, {Replicate(), Partial()});
}

// pytorch/pytorch#144109, #110762.
TEST(RaggedTest, UnevenPartsGivenToFromLocalAreOneTensor) {
  test::run_ranks(4, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {4});
    const LocalTensor whole = global_tensor({3, 14});
    const Placements ragged = {Shard(1, {2, 3, 4, 5})};
    const std::int64_t starts[] = {0, 2, 5, 9};
    const int rank = mesh.rank();
    const LocalTensor part = whole.narrow(1, starts[rank], 2 + rank).clone();
    const DTensor x = DTensor::from_local(part, mesh, ragged, {.run_check = true});
    EXPECT_EQ(x.shape(), (Shape{3, 14}));
    EXPECT_EQ(x.placements(), ragged);
    EXPECT_EQ(difference(x.full_tensor(), whole, {0, 0}), "");
    EXPECT_EQ(
        difference(x.redistribute({Shard(1)}).to_local(),
                   cut(whole, make_spec(mesh, {Shard(1)}, {3, 14}, x.dtype()).local_box()), {0, 0}),
        "");
    EXPECT_EQ(difference(x.redistribute({Shard(0)}).full_tensor(), whole, {0, 0}), "");
    const DTensor made = distribute_tensor(whole, mesh, ragged);
    EXPECT_EQ(difference(made.to_local(), part, {0, 0}), "");
    EXPECT_EQ(zeros({3, 14}, mesh, ragged).to_local().shape(), part.shape());
    EXPECT_THROW(DTensor::from_local(whole, mesh, ragged), base::Error);
    expect_refused([&] { DTensor::from_local(part, mesh, {Shard(1)}, {.run_check = true}); },
                   {"Shard(dim, {sizes})"});
    expect_refused(
        [&] {
          DTensor::from_local(part.narrow(1, 0, 2 + rank % 2), mesh, {Shard(1)},
                              {.shape = {3, 14}, .has_shape = true, .run_check = true});
        },
        {"Shard(1, {sizes})"});
  });
}

TEST(RaggedTest, RanksThatGiveFromLocalOtherSizesAreNamedOnAllOfThem) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    // Each one's own idea of the other.
    const Placement own = group.rank() == 0 ? Shard(0, {1, 4}) : Shard(0, {2, 3});
    const LocalTensor part = global_tensor({group.rank() == 0 ? 1 : 3, 2});
    expect_refused([&] { DTensor::from_local(part, mesh, {own}, {.run_check = true}); },
                   {"rank 1 of the mesh has others than rank 0", "the sizes of all of them"});
  });
}

TEST(RaggedTest, FromLocalMixesRaggedAndEvenAxes) {
  test::run_ranks(4, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2});
    const LocalTensor whole = global_tensor({5, 6});
    const Placements placements = {Shard(0, {1, 4}), Shard(1)};
    const Spec spec = make_spec(mesh, placements, {5, 6}, whole.dtype());
    const LocalTensor part = cut(whole, spec.local_box());
    const DTensor x = DTensor::from_local(part, mesh, placements, {.run_check = true});
    EXPECT_EQ(x.spec(), spec);
    EXPECT_EQ(difference(x.full_tensor(), whole, {0, 0}), "");
  });
}

TEST(RaggedTest, OperatorsThatKeepTheRowsKeepTheCutAndMoveNothing) {
  test::run_ranks(3, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {3});
    const Placements ragged = {Shard(0, {3, 0, 5})};
    const DTensor a = distribute_tensor(global_tensor({8, 4}), mesh, ragged);
    const DTensor b = distribute_tensor(global_tensor({4, 2}), mesh, {Replicate()});
    const CommCounter counter;
    EXPECT_EQ((exp(a) * a + a).placements(), ragged);
    EXPECT_EQ(matmul(a, b).placements(), ragged);
    EXPECT_EQ(a.sum({1}).placements(), ragged);
    EXPECT_EQ(a.sum({0}).placements(), Placements{Partial()});
    EXPECT_EQ(a.transpose(0, 1).placements(), (Placements{Shard(1, {3, 0, 5})}));
    EXPECT_EQ(counter.get_total_counts(), 0);
  });
}

TEST(RaggedTest, GradientsGoBackThroughRedistributions) {
  test::run_ranks(3, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {3});
    const Tensor whole = global_tensor({8, 4}), weights = global_tensor({8, 4}).view({8, 4}) * 0.5;
    for (const Placement& from :
         {Shard(0, {3, 0, 5}), Shard(0), Replicate(), Shard(1, {0, 1, 3})}) {
      for (const Placement& to :
           {Shard(0, {0, 8, 0}), Shard(0), Replicate(), Shard(1, {4, 0, 0})}) {
        SCOPED_TRACE(placements_to_string({from, to}));
        const DTensor x = distribute_tensor(whole, mesh, {from}).requires_grad_();
        const DTensor w = distribute_tensor(weights, mesh, {Replicate()});
        const DTensor there = x.redistribute({to});
        (there * there * w).sum().backward();
        EXPECT_EQ(x.grad().placements(), x.placements());
        EXPECT_EQ(difference(x.grad().full_tensor().plain_local(),
                             (whole * weights * 2.0).plain_local(), {1e-12, 1e-12}),
                  "");
        const DTensor y = distribute_tensor(whole, mesh, {from}).requires_grad_();
        DTensor::from_local(y.to_local() * 3.0, mesh, y.placements(),
                            {.shape = y.shape(), .has_shape = true})
            .sum()
            .backward();
        EXPECT_EQ(difference(y.grad().full_tensor().plain_local(),
                             tensors::full({8, 4}, 3, {DType::f64}), {0, 0}),
                  "");
      }
    }
  });
}

TEST(RaggedTest, FactoriesMakeTheNumbersOfOneRank) {
  test::run_ranks(3, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {3});
    const Placements ragged = {Shard(0, {3, 0, 5})};
    const auto expect_same = [&](const DTensor& made, const Tensor& right) {
      EXPECT_EQ(made.placements(), ragged);
      EXPECT_EQ(difference(made.full_tensor().plain_local(), right.plain_local(), {0, 0}), "");
    };
    expect_same(arange(8, mesh, ragged), arange(8));
    expect_same(full({8, 2}, 7, mesh, ragged), full({8, 2}, 7));
    expect_same(eye(8, 8, mesh, ragged), eye(8));
  });
}

TEST(RaggedTest, AnotherCutTakesOneExchangeOfTheRowsThatDiffer) {
  test::run_ranks(3, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {3});
    const DTensor x =
        distribute_tensor(global_tensor({3000, 4}), mesh, {Shard(0, {999, 1001, 1000})});
    const PlanExplanation way = explain(x, {Shard(0)});
    ASSERT_EQ(way.chosen.steps.size(), 1U);
    EXPECT_EQ(way.chosen.steps[0].step.kind, StepKind::exchange);
    EXPECT_EQ(way.chosen.mesh.total, 1 * 4 * 8);
    EXPECT_NE(way.to_string().find("S(0: 999,1001,1000)"), std::string::npos) << way;
  });
}

TEST(RaggedTest, AnExplanationIsReadLongAfterItsTensorsHaveGone) {
  test::run_ranks(3, [](const ProcessGroup& group) {
    std::optional<PlanExplanation> way;
    CallsExplanation calls;
    {
      const DeviceMesh mesh(group, {3});
      const DTensor x = distribute_tensor(global_tensor({8, 4}), mesh, {Shard(0, {3, 0, 5})});
      way = explain(x, {Shard(0, {7, 1, 0})});
      calls = explain([&] { x.redistribute({Shard(0, {6, 1, 1})}); });
    }
    for (std::int64_t i = 0; i < 20'000; ++i) Shard(0, {i, 31, 4});
    EXPECT_NE(way->to_string().find("S(0: 7,1,0)"), std::string::npos);
    EXPECT_NE(calls.to_string().find("S(0: 6,1,1)"), std::string::npos) << calls;
  });
}

/// Sizes of 8 rows whose cut has the number that one before had, if that one has gone for good.
Placement cut_with_number(Cut::Number number) {
  std::map<Cut::Number, Cut::Number> next;
  Cut::Number last = 0;
  for (std::int64_t i = 0; i < 30'000; ++i) {
    // Numbers are used again in a circle.
    if (const auto found = next.find(last); found != next.end() && found->second == number) break;
    const Cut::Number now = Shard(0, {i, 77, 1}).cut()->number();
    next[std::exchange(last, now)] = now;
  }
  return Shard(0, {0, 8, 0});
}

TEST(RaggedTest, SizesThatAreNoCutAreNotTakenForOthersLater) {
  Placement later = Replicate();
  std::barrier threads(3);
  test::run_ranks(3, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {3});
    const DTensor x = distribute_tensor(global_tensor({8, 4}), mesh, {Replicate()});
    Cut::Number number = 0;
    {
      const Placement even = Shard(0, {3, 3, 2});
      EXPECT_EQ(x.redistribute({even}).placements(), Placements{Shard(0)});
      number = even.cut()->number();
    }
    threads.arrive_and_wait();
    if (group.rank() == 0) later = cut_with_number(number);
    threads.arrive_and_wait();
    EXPECT_EQ(x.redistribute({later}).placements(), Placements{later});
  });
}

}  // namespace
}  // namespace dtrun::dtensor
