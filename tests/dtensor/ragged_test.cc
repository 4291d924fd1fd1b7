// Ragged shards: a size per rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "dtensor/catalogue.h"
#include "dtensor/refusal.h"
#include "dtensor/vector_tensor.h"
#include "dtrun/dtensor/layout/notation.h"
#include "dtrun/dtensor/layout/sharding_picture.h"
#include "dtrun/dtensor/move/comm_counter.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/explain.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

using collectives::ProcessGroup;
using tensors::Shape;
using Sizes = std::vector<std::int64_t>;

void expect_named(const std::function<void()>& call, const std::vector<std::string>& words) {
  for (const std::string& word : words) expect_refused(call, word);
}

/// All on the last rank; none on the first, then as torch.chunk; one each, the rest on the second.
std::vector<Sizes> cuts_of(std::int64_t n, int parts) {
  const auto ranks = static_cast<std::size_t>(parts);
  Sizes last(ranks, 0), late(ranks, 0), second(ranks, 0);
  last.back() = n;
  for (int i = 1; i < parts; ++i)
    late[static_cast<std::size_t>(i)] = chunk_of(n, parts - 1, i - 1).size;
  std::int64_t left = n;
  for (std::size_t i = 0; i < ranks; ++i) {
    second[i] = std::min<std::int64_t>(left, 1);
    left -= second[i];
  }
  second[ranks > 1 ? 1 : 0] += left;
  return {last, late, second};
}

/// Every legal layout with `cuts` ways to cut a dim raggedly, and what keeps their sizes.
struct RaggedLayouts {
  std::vector<Layout> layouts;
  std::vector<Placements> held;
};
RaggedLayouts ragged_layouts(const Shape& shape, const std::vector<int>& mesh, std::size_t cuts,
                             const Placements& others) {
  std::vector<Placements> rows = {{}};
  for (const int parts : mesh) {
    Placements choices = others;
    for (std::size_t dim = 0; dim < shape.size(); ++dim) {
      choices.push_back(Shard(static_cast<int>(dim)));
      for (std::size_t i = 0; i < cuts; ++i)
        choices.push_back(Shard(static_cast<int>(dim), cuts_of(shape[dim], parts)[i]));
    }
    std::vector<Placements> longer;
    for (const Placements& row : rows) {
      for (const Placement& choice : choices) {
        longer.push_back(row);
        longer.back().push_back(choice);
      }
    }
    rows = std::move(longer);
  }
  RaggedLayouts all;
  for (const Placements& row : rows) {
    for (const Layout& ordered : all_orders(Layout(row))) {
      try {
        const Layout layout = make_layout(shape, mesh, row, ordered.order());
        if (std::ranges::find(all.layouts, layout) != all.layouts.end()) continue;
        all.layouts.push_back(layout);
        all.held.push_back(row);
      } catch (const base::Error&) {
        continue;  // one that is not the outermost
      }
    }
  }
  return all;
}

TEST(RaggedTest, EqualSizesAreOneCutAndSizesOfTorchChunkAreNone) {
  EXPECT_EQ(Shard(0, {3, 0, 5}), Shard(0, {3, 0, 5}));
  EXPECT_NE(Shard(0, {3, 0, 5}), Shard(0, {3, 5, 0}));
  EXPECT_NE(Shard(0, {3, 0, 5}), Shard(1, {3, 0, 5}));
  EXPECT_NE(Shard(0, {3, 0, 5}), Shard(0));
  EXPECT_TRUE(Shard(0, {3, 0, 5}).is_shard(0));
  EXPECT_EQ(Shard(0, {3, 0, 5}).sizes(), (Sizes{3, 0, 5}));
  const Layout chunked = make_layout({8}, {3}, {Shard(0, {3, 3, 2})});
  EXPECT_EQ(chunked, make_layout({8}, {3}, {Shard(0)}));
  EXPECT_FALSE(chunked.is_ragged());
  const Placements ragged = {Shard(-1, {3, 0, 5})};
  const Layout layout = make_layout({2, 8}, {3}, ragged);
  EXPECT_TRUE(layout.is_ragged(0));
  EXPECT_EQ(layout[0], Shard(1, {3, 0, 5}));
  EXPECT_EQ(layout.to_string(), "[S(1: 3,0,5)]");
}

TEST(RaggedTest, IsReadAsItIsWritten) {
  EXPECT_EQ(Shard(0, {3, 0, 5}).to_string(), "S(0: 3,0,5)");
  EXPECT_EQ(Shard(0, {3, 0, 5}).repr(), "Shard(dim=0, sizes=[3, 0, 5])");
  EXPECT_EQ(Placement::parse("S(0: 3,0,5)"), Shard(0, {3, 0, 5}));
  EXPECT_EQ(Placement::parse("S(-1:3, 0, 5)"), Shard(-1, {3, 0, 5}));
  for (const char* bad : {"S(0:)", "S(0: 3,,5)", "S(0: 3,x)", "S(0: 3,5,)", "S(:3)"})
    EXPECT_THROW(Placement::parse(bad), base::Error) << bad;
  const Placements held = {Shard(0, {3, 0, 5}), Shard(0)};
  const Layout layout = make_layout({8, 4}, {3, 2}, held);
  for (const char* text : {"[S(0: 3,0,5), S(0)]", "Shard(0, {3, 0, 5}), Shard(0)",
                           "[Shard(dim=0, sizes=[3, 0, 5]), Shard(dim=0)]"}) {
    EXPECT_EQ(parse_layout(text, {8, 4}, {3, 2}), layout) << text;
  }
  EXPECT_THROW(sharding_sequence(layout, 2), base::Error);
}

TEST(RaggedTest, WhatDoesNotFitIsNamed) {
  expect_named([] { Shard(0, {3, -1}); }, {"-1", "{3, -1}"});
  expect_named([] { Shard(0, Sizes{}); }, {"a size for each rank"});
  expect_named([] { Shard(0, {INT64_MAX, 1}); }, {"1 of the elements"});
  expect_named(
      [] {
        make_layout({8}, {3}, {Shard(0, {3, 5})});
      },
      {"S(0: 3,5)", "2 sizes", "3 ranks"});
  expect_named([] { make_layout({8}, {2}, {Shard(0, {3, 4})}); }, {"add up to 7", "8 elements"});
  expect_named([] { make_layout({8}, {2}, {Shard(0, {4, 3})}); }, {"add up to 7"});
  expect_named([] { make_layout({8}, {2}, {Shard(1, {3, 5})}); }, {"dim"});
  expect_named(
      [] {
        make_layout({8}, {2, 2}, {Shard(0), Shard(0, {3, 5})});
      },
      {"axis 1", "axis 0", "{0: [1, ...]}"});
  EXPECT_NO_THROW(make_layout({8}, {2, 2}, {Shard(0), Shard(0, {3, 5})}, {{0, {1, 0}}}));
  expect_named(
      [] {
        make_layout({8}, {2, 2}, {Shard(0, {1, 7}), Shard(0, {3, 5})});
      },
      {"one has sizes"});
}

TEST(RaggedTest, AMillionCutsOneAfterAnotherLeaveMemoryFlat) {
  const std::size_t before = Cut::kept();
  for (std::int64_t i = 0; i < 1'000'000; ++i) Shard(0, {i, 3, 1});
  EXPECT_LE(Cut::kept(), before + 5000);
  const Placement kept = Shard(0, {5, 0, 1});
  for (std::int64_t i = 0; i < 20'000; ++i) Shard(0, {i, 4, 1});
  EXPECT_EQ(kept, Shard(0, {5, 0, 1}));
  EXPECT_EQ(kept.sizes(), (Sizes{5, 0, 1}));
}

TEST(RaggedTest, ThreadsThatMakeAndDropTheSameCutsReadTheRightSizes) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (std::int64_t i = 0; i < 30'000; ++i) {
        const Placement mine = Shard(0, {i % 9000, 7, 1});
        const Layout layout({mine});
        const Placement again = layout[0];
        if (again.sizes()[0] != i % 9000 || again != mine) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(RaggedTest, PartsAreDisjointAndCover) {
  const std::vector<int> mesh = {3, 2};
  for (const Shape& shape : std::vector<Shape>{{8, 5}, {1, 7}, {0, 2}}) {
    const RaggedLayouts all = ragged_layouts(shape, mesh, 3, {Replicate()});
    for (const Layout& layout : all.layouts) {
      PlanSimulator simulator(shape, mesh);
      std::vector<int> owners(static_cast<std::size_t>(tensors::numel(shape)), 0);
      int copies = 1;
      for (std::size_t a = 0; a < mesh.size(); ++a) copies *= layout.is_shard(a) ? 1 : mesh[a];
      for (int rank = 0; rank < 6; ++rank) {
        PlanSimulator::for_each_index(simulator.box_of(rank, layout),
                                      [&](const Shape& index) { ++owners[simulator.flat(index)]; });
      }
      EXPECT_TRUE(std::ranges::all_of(owners, [&](int n) { return n == copies; }))
          << layout.to_string();
    }
  }
}

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
    for (std::size_t i = 0; i < catalogue.layouts.size(); ++i) {
      const DTensor from = placed(catalogue, i, mesh);
      for (const Layout& to : catalogue.layouts) {
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
    expect_named([&] { DTensor::from_local(part, mesh, {Shard(1)}, {.run_check = true}); },
                 {"Shard(dim, {sizes})"});
    expect_named(
        [&] {
          DTensor::from_local(part.narrow(1, 0, 2 + rank % 2), mesh, {Shard(1)},
                              {.shape = {3, 14}, .has_shape = true, .run_check = true});
        },
        {"Shard(1, {sizes})"});
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
    EXPECT_EQ(way.mesh.total, 1 * 4 * 8);
    EXPECT_NE(way.to_string().find("S(0: 999,1001,1000)"), std::string::npos) << way;
  });
}

TEST(RaggedTest, PicturesShowTheSizes) {
  const Placements held = {Shard(0, {3, 0, 5})};
  const std::string picture = sharding_text({{8, 4}, {3}, make_layout({8, 4}, {3}, held)});
  for (const char* text : {"S(0: 3,0,5)", "0:3", "3:8"})
    EXPECT_NE(picture.find(text), std::string::npos) << picture;
}

}  // namespace
}  // namespace dtrun::dtensor
