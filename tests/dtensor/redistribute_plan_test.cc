#include "dtrun/dtensor/plan/redistribute_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <stdexcept>

#include "dtensor/known_counts.h"
#include "dtensor/layout_catalogue.h"
#include "dtensor/plan_simulator.h"
#include "dtensor/ragged_catalogue.h"
#include "dtensor/vector_layout.h"
#include "dtrun/dtensor/plan/traffic.h"
#include "support/one_in.h"

namespace dtrun::dtensor {
namespace {

using tensors::Shape;

/// "S0 R Pmax" as the tests below write layouts, with ascending order.
Layout layout_of(const std::string& text, const Shape& shape, const std::vector<int>& mesh,
                 ShardOrder order = {}) {
  Placements placements;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == 'R') placements.push_back(Replicate());
    if (text[i] == 'P') placements.push_back(Partial());
    if (text[i] == 'S') placements.push_back(Shard(text[i + 1] - '0'));
  }
  return make_layout(shape, mesh, placements, std::move(order));
}

int collectives_of(const std::vector<Step>& steps) {
  return static_cast<int>(
      std::ranges::count_if(steps, [](const Step& step) { return is_collective(step.kind); }));
}

std::vector<StepKind> kinds_of(const std::vector<Step>& steps) {
  std::vector<StepKind> kinds;
  for (const Step& step : steps) kinds.push_back(step.kind);
  return kinds;
}

std::vector<double> iota(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<double>(i - 3));
  return values;
}

/// Every rank's every element is right after the plan, whatever the layouts.
void expect_right(const Shape& shape, const std::vector<int>& mesh, const Layout& from,
                  const Layout& to, const CostModel& costs = {}) {
  const std::vector<Step> steps = plan_redistribute(shape, mesh, from, to, costs);
  SCOPED_TRACE(from.to_string() + " -> " + to.to_string() + " of " + std::to_string(shape.size()) +
               " dims\n" + plan_to_string(steps));
  PlanSimulator simulator(shape, mesh);
  const std::vector<double> global = iota(shape);
  simulator.fill(global, from);
  ASSERT_NO_THROW(simulator.run(steps));
  ASSERT_EQ(simulator.layout(), to);
  for (int rank = 0; rank < simulator.world(); ++rank) {
    PlanSimulator::for_each_index(simulator.box_of(rank, to), [&](const Shape& index) {
      ASSERT_EQ(simulator.value_at(rank, index), global[simulator.flat(index)]) << "rank " << rank;
    });
  }
}

constexpr std::size_t kOneIn = testing_support::one_in(23);

void expect_pairs_right(const Shape& shape, const std::vector<int>& mesh,
                        const std::vector<Layout>& layouts, const CostModel& costs) {
  for (std::size_t pair = 0; pair < layouts.size() * layouts.size(); pair += kOneIn) {
    expect_right(shape, mesh, layouts[pair / layouts.size()], layouts[pair % layouts.size()],
                 costs);
    if (testing::Test::HasFailure()) return;
  }
}

void expect_all_pairs_right(const std::vector<int>& mesh, const std::vector<Shape>& shapes,
                            const std::vector<ReduceOp>& ops, const CostModel& costs = {}) {
  for (const Shape& shape : shapes) {
    expect_pairs_right(shape, mesh, all_layouts(shape, mesh, ops), costs);
    if (testing::Test::HasFailure()) return;
  }
}

const std::vector<ReduceOp> kOps = {ReduceOp::sum, ReduceOp::avg, ReduceOp::max, ReduceOp::min,
                                    ReduceOp::product};

TEST(RedistributePlanTest, EveryPairOfLayoutsOnOneAxisGivesTheRightElements) {
  std::vector<Shape> shapes = {{}};
  for (const std::int64_t rows : {0, 1, 2, 3, 5, 7, 8}) {
    shapes.push_back({rows});
    for (const std::int64_t columns : {0, 1, 2, 3, 5, 7, 8}) shapes.push_back({rows, columns});
  }
  for (int size = 1; size <= 5; ++size) expect_all_pairs_right({size}, shapes, kOps);
}

TEST(RedistributePlanTest, EveryPairOfLayoutsAndOrdersOnTwoAxesGivesTheRightElements) {
  const std::vector<ReduceOp> ops = {ReduceOp::sum, ReduceOp::avg, ReduceOp::max};
  for (const std::vector<int>& mesh :
       std::vector<std::vector<int>>{{2, 2}, {3, 2}, {2, 4}, {1, 3}, {3, 1}, {1, 1}}) {
    expect_all_pairs_right(mesh, {{}, {5}, {7, 3}, {1, 8}, {5, 0}}, ops);
  }
  expect_all_pairs_right({2, 2}, {{3, 5, 2}}, {ReduceOp::sum, ReduceOp::min, ReduceOp::product});
}

TEST(RedistributePlanTest, EveryPairOfLayoutsAndOrdersOnThreeAxesGivesTheRightElements) {
  expect_all_pairs_right({2, 2, 2}, {{7, 3}}, {ReduceOp::sum});
  expect_all_pairs_right({2, 1, 3}, {{5}}, {ReduceOp::sum, ReduceOp::max});
}

TEST(RedistributePlanTest, EveryPairIsRightWhereBytesCostSoMuchThatPlansTakeDetours) {
  const std::vector<LinkRate> slow(3, {1e-6, 1});
  const CostModel costs{.links = slow};
  expect_all_pairs_right({2, 3}, {{7, 3}, {3, 5, 2}}, {ReduceOp::sum, ReduceOp::avg}, costs);
  expect_all_pairs_right({2, 2, 2}, {{7, 3}}, {ReduceOp::sum}, costs);
}

TEST(RedistributePlanTest, EveryPairOfRaggedLayoutsIsRightAtAnyCost) {
  const std::vector<LinkRate> slow(3, {1e-6, 1}), quick(3, {1, 1e300});
  for (const CostModel& costs :
       {CostModel{}, CostModel{.links = slow}, CostModel{.links = quick}}) {
    const auto expect_all = [&](const Shape& shape, const std::vector<int>& mesh, std::size_t cuts,
                                const Placements& others) {
      expect_pairs_right(shape, mesh, ragged_layouts(shape, mesh, cuts, others).layouts, costs);
    };
    expect_all({7, 3}, {3}, 3, {Replicate(), Partial(), Partial(ReduceOp::avg)});
    expect_all({5, 3}, {2, 3}, 1, {Replicate(), Partial()});
    expect_all({6}, {2, 1, 2}, 2, {Replicate(), Partial()});
  }
}

/// A legal layout by chance, in any order of the axes.
Layout random_layout(const Shape& shape, const std::vector<int>& mesh, std::mt19937& random) {
  Placements placements;
  for (std::size_t axis = 0; axis < mesh.size(); ++axis) {
    const auto choice = static_cast<int>(random() % (shape.size() + 3));
    const auto dims = static_cast<int>(shape.size());
    placements.push_back(choice < dims    ? Placement(Shard(choice))
                         : choice == dims ? Placement(Partial())
                                          : Placement(Replicate()));
  }
  ShardOrder order = Layout(placements).order();
  for (auto& [dim, axes] : order) std::ranges::shuffle(axes, random);
  return make_layout(shape, mesh, placements, order);
}

TEST(RedistributePlanTest, RandomPairsOnThreeAndFourAxesAreRightAtAnyCost) {
  std::mt19937 random(14);
  for (int round = 0; round < static_cast<int>(1500 / kOneIn); ++round) {
    const std::vector<int> mesh =
        round % 2 == 0 ? std::vector<int>{2, 3, 2} : std::vector<int>{2, 1, 2, 3};
    const Shape shape = round % 3 == 0 ? Shape{11, 5} : Shape{7, 4, 3};
    const double rate = round % 5 == 0 ? 4e9 : 1;  // bytes that cost make exchanges
    std::vector<LinkRate> links(mesh.size(), {1e-6, rate});
    if (round % 7 == 0) links[0] = {1e-4, rate / 10};
    const CostModel costs{.links = links};
    const Layout from = random_layout(shape, mesh, random), to = random_layout(shape, mesh, random);
    expect_right(shape, mesh, from, to, costs);
    if (HasFailure()) return;
  }
}

TEST(RedistributePlanTest, ManyAxesAreStillPlannedRight) {
  const std::vector<int> mesh = {2, 2, 2, 2, 2, 2};
  const Shape shape = {9, 5, 3};
  expect_right(shape, mesh, layout_of("S0 S0 S1 P S2 S1", shape, mesh),
               layout_of("S1 S0 S0 S2 R P", shape, mesh, {{0, {2, 1}}}));
}

TEST(RedistributePlanTest, OneAxisTakesTheCollectiveThatIsMadeForIt) {
  const Shape shape = {7, 5};
  const std::vector<int> mesh = {4};
  const auto kinds = [&](const Placement& from, const Placement& to) {
    return kinds_of(plan_redistribute(shape, mesh, make_layout(shape, mesh, {from}),
                                      make_layout(shape, mesh, {to})));
  };
  using Kinds = std::vector<StepKind>;
  EXPECT_EQ(kinds(Shard(0), Shard(1)), Kinds{StepKind::all_to_all});
  EXPECT_EQ(kinds(Shard(0), Replicate()), Kinds{StepKind::all_gather});
  EXPECT_EQ(kinds(Replicate(), Shard(1)), Kinds{StepKind::local_chunk});
  EXPECT_EQ(kinds(Partial(), Replicate()), Kinds{StepKind::all_reduce});
  EXPECT_EQ(kinds(Partial(), Shard(0)), Kinds{StepKind::reduce_scatter});
  EXPECT_EQ(kinds(Replicate(), Partial()), Kinds{StepKind::to_partial});
  EXPECT_EQ(kinds(Shard(0), Partial()), Kinds{StepKind::to_partial});
  EXPECT_EQ(kinds(Shard(0), Partial(ReduceOp::avg)),
            (Kinds{StepKind::all_gather, StepKind::to_partial}));
  EXPECT_EQ(kinds(Partial(), Partial(ReduceOp::max)),
            (Kinds{StepKind::all_reduce, StepKind::to_partial}));
  EXPECT_EQ(kinds(Partial(), Partial()), Kinds{});
}

TEST(RedistributePlanTest, PlansTakeAsManyCollectivesAsAreKnownAndNoMoreThanPyTorchs) {
  std::size_t plans = 0;
  for (const KnownCount& known : kKnownCounts) {
    EXPECT_LE(known.here, known.of_pytorch);
    for (const Shape& shape : kShapesOfKnownCounts) {
      if (!known.fits(shape.size())) continue;
      SCOPED_TRACE(std::string(known.from) + " -> " + known.to + " of " +
                   tensors::shape_to_string(shape));
      const std::vector<int> mesh = known.mesh();
      const std::vector<Step> steps =
          plan_redistribute(shape, mesh, make_layout(shape, mesh, known_placements(known.from)),
                            make_layout(shape, mesh, known_placements(known.to)));
      EXPECT_EQ(collectives_of(steps), known.here) << plan_to_string(steps);
      ++plans;
    }
  }
  EXPECT_EQ(plans, 49U);
}

TEST(RedistributePlanTest, PlansTakeNoMoreCollectivesThanPyTorchTookOnTheVectors) {
  std::size_t compared = 0;
  for (const test::VectorCase& item : test::read_vector_file("redistribute")) {
    const boost::json::object& torch = item.at("torch").as_object();
    if (item.at("op") != "redistribute" || !torch.contains("comm") ||
        item.at("demand") == "error") {
      continue;
    }
    SCOPED_TRACE(test::text_of(item.at("id")));
    const boost::json::object& input = item.at("inputs").at(0).as_object();
    const std::vector<int> mesh = test::ints_of(item.at("mesh"));
    const Shape shape = test::sizes_of(input.at("shape"));
    const boost::json::object& args = item.at("args").as_object();
    const Layout from = make_layout(shape, mesh, placements_of(input.at("placements")),
                                    order_of(input.if_contains("shard_order")));
    const Layout to = make_layout(shape, mesh, placements_of(args.at("to")),
                                  order_of(args.if_contains("to_order")));
    std::int64_t count = 0;
    for (const auto& [kind, times] : torch.at("comm").as_object()) count += times.as_int64();
    const std::vector<Step> steps = plan_redistribute(shape, mesh, from, to);
    EXPECT_LE(collectives_of(steps), count) << plan_to_string(steps);
    EXPECT_EQ(plan_cost(shape, mesh, steps).collectives, collectives_of(steps));
    ++compared;
  }
  test::expect_cases(compared, 2375);
}

TEST(RedistributePlanTest, AmongPlansOfAsManyCollectivesTheOneOfFewestElementsIsTaken) {
  const Shape shape = {8, 8};
  const std::vector<int> mesh = {2, 2};
  // Cutting first halves what is reduced.
  EXPECT_EQ(plan_to_string(plan_redistribute(shape, mesh, layout_of("P R", shape, mesh),
                                             layout_of("R S0", shape, mesh))),
            "local_chunk on axis 1: [P(sum), R] -> [P(sum), S(0)]\n"
            "all_reduce on axis 0: [P(sum), S(0)] -> [R, S(0)]\n");
  // Reducing to the shard first, then gathering, would be one more.
  EXPECT_EQ(kinds_of(plan_redistribute(shape, mesh, layout_of("P P", shape, mesh),
                                       layout_of("S0 R", shape, mesh))),
            (std::vector<StepKind>{StepKind::reduce_scatter, StepKind::all_reduce}));
}

TEST(RedistributePlanTest, MuchDataTakesAnExchangeOfFewerBytes) {
  const std::vector<int> mesh = {8, 8};
  const auto kinds = [&](const Shape& shape) {
    return kinds_of(plan_redistribute(shape, mesh, layout_of("S0 S1", shape, mesh),
                                      layout_of("S1 S0", shape, mesh)));
  };
  using Kinds = std::vector<StepKind>;
  EXPECT_EQ(kinds({8, 8, 8}),
            (Kinds{StepKind::all_gather, StepKind::all_to_all, StepKind::local_chunk}));
  EXPECT_EQ(kinds({1024, 1024, 256}), Kinds{StepKind::exchange});
}

TEST(RedistributePlanTest, BothAxesOfADimGoToAnotherOneInOneExchange) {
  const std::vector<int> mesh = {2, 2};
  const Shape shape = {1024, 1024};
  const Layout rows = layout_of("S0 S0", shape, mesh), columns = layout_of("S1 S1", shape, mesh);
  const std::vector<Step> steps = plan_redistribute(shape, mesh, rows, columns);
  EXPECT_EQ(plan_to_string(steps), "exchange on axis 0 and axis 1: [S(0), S(0)] -> [S(1), S(1)]\n");
  EXPECT_EQ(plan_traffic(shape, mesh, steps, {1, 0}, 4), (std::vector<Traffic>{{786432, 786432}}));
  const Layout turned = layout_of("S0 S0", shape, mesh, {{0, {1, 0}}});
  const std::vector<Step> turn = plan_redistribute(shape, mesh, rows, turned);
  EXPECT_EQ(plan_to_string(turn),
            "exchange on axis 0 and axis 1: [S(0), S(0)] -> [S(0), S(0)] order {0: [1, 0]}\n");
  // The first and the last quarter stay where they are, the two others change places.
  EXPECT_EQ(plan_traffic(shape, mesh, turn, {0, 0}, 4), (std::vector<Traffic>{{0, 0}}));
  EXPECT_EQ(plan_traffic(shape, mesh, turn, {0, 1}, 4), (std::vector<Traffic>{{1048576, 1048576}}));
}

TEST(RedistributePlanTest, AnExchangeLeavesOutTheAxesThatStay) {
  const std::vector<int> mesh = {2, 2, 2};
  const Shape shape = {1024, 1024};
  EXPECT_EQ(plan_to_string(plan_redistribute(shape, mesh, layout_of("S0 P S1", shape, mesh),
                                             layout_of("S1 P S0", shape, mesh))),
            "exchange on axis 0 and axis 2: [S(0), P(sum), S(1)] -> [S(1), P(sum), S(0)]\n");
  // Cutting what axis 0 had cut, axis 1 takes part.
  const std::vector<Step> steps =
      plan_redistribute(shape, mesh, layout_of("S0 S0 S1", shape, mesh, {{0, {0, 1}}}),
                        layout_of("S1 S0 S0", shape, mesh, {{0, {2, 1}}}));
  ASSERT_EQ(kinds_of(steps), std::vector<StepKind>{StepKind::exchange});
  EXPECT_EQ(steps[0].axes(), (std::vector<int>{0, 1, 2}));
}

TEST(RedistributePlanTest, ThousandsOfMessagesAreWeighed) {
  const std::vector<int> mesh = {64, 64};
  const Shape shape = {4096, 4096};
  // 16 KiB a rank: 4,095 messages of 4 bytes take longer than two collectives of 63.
  for (const Step& step : plan_redistribute(shape, mesh, layout_of("S0 S0", shape, mesh),
                                            layout_of("S1 S1", shape, mesh, {{1, {1, 0}}}))) {
    EXPECT_NE(step.kind, StepKind::exchange);
  }
}

TEST(RedistributePlanTest, ASlowAxisCarriesLess) {
  const Shape shape = {1024, 1024};
  const std::vector<int> mesh = {2, 2};
  const LinkRate slow{1e-5, 1e8}, fast{1e-5, 1e10};
  const auto first_axis = [&](const std::vector<LinkRate>& links) {
    const CostModel costs{.links = links};
    return plan_redistribute(shape, mesh, layout_of("P P", shape, mesh),
                             layout_of("S0 S1", shape, mesh), costs)[0]
        .axis;
  };
  // What the first one reduces is whole, what the second one reduces is half of it.
  EXPECT_EQ(first_axis({slow, fast}), 1);
  EXPECT_EQ(first_axis({fast, slow}), 0);
}

TEST(RedistributePlanTest, TheCostIsThatOfWhatTheBusiestRankSends) {
  const Shape shape = {1000, 1000};
  const std::vector<int> mesh = {4};
  const std::vector<LinkRate> links = {{1e-3, 1e6}};
  const CostModel costs{.item_bytes = 8, .links = links};
  const PlanCost cost = plan_cost(shape, mesh,
                                  plan_redistribute(shape, mesh, layout_of("S0", shape, mesh),
                                                    layout_of("R", shape, mesh), costs),
                                  costs);
  EXPECT_DOUBLE_EQ(cost.seconds, 1e-3 + 8 * 750'000 / 1e6);
  EXPECT_EQ(cost.collectives, 1);
}

TEST(RedistributePlanTest, AveragesComeAfterSumsSoThatTheyRoundOnce) {
  const Shape shape = {8, 8};
  const std::vector<int> mesh = {2, 3};
  const Layout from = make_layout(shape, mesh, {Partial(), Partial(ReduceOp::avg)});
  const auto axes = [&](const Layout& to) {
    std::vector<int> order;
    for (const Step& step : plan_redistribute(shape, mesh, from, to)) order.push_back(step.axis);
    return order;
  };
  EXPECT_EQ(axes(layout_of("R S0", shape, mesh)), (std::vector<int>{0, 1}));
  EXPECT_EQ(axes(layout_of("R R", shape, mesh)), (std::vector<int>{0, 1}));
  EXPECT_EQ(axes(layout_of("P R", shape, mesh)), (std::vector<int>{1}));
}

TEST(RedistributePlanTest, TheSimulatorRefusesStepsThatNoLineOfRanksCanTake) {
  const Shape shape = {7, 5};
  const std::vector<int> mesh = {2, 2};
  const Layout nested = layout_of("S0 S0", shape, mesh);
  const auto run = [&](const Layout& from, StepKind kind, int axis, const Layout& to) {
    PlanSimulator simulator(shape, mesh);
    simulator.fill(iota(shape), from);
    simulator.run({{kind, axis, from, to}});
  };
  EXPECT_THROW(run(nested, StepKind::all_gather, 0, layout_of("R S0", shape, mesh)),
               std::logic_error);
  EXPECT_THROW(run(nested, StepKind::all_to_all, 1, layout_of("S0 R", shape, mesh)),
               std::logic_error);
  EXPECT_THROW(run(nested, StepKind::all_gather, 1, layout_of("R R", shape, mesh)),
               std::logic_error);
  EXPECT_NO_THROW(run(nested, StepKind::all_gather, 1, layout_of("S0 R", shape, mesh)));
}

TEST(RedistributePlanTest, AnAxisOfOneRankIsOnlyRelabelled) {
  const Shape shape = {8, 8};
  const std::vector<int> mesh = {1, 2};
  const std::vector<Step> steps = plan_redistribute(shape, mesh, layout_of("S0 S0", shape, mesh),
                                                    layout_of("R S0", shape, mesh));
  EXPECT_EQ(kinds_of(steps), std::vector<StepKind>{StepKind::relabel});
  const std::vector<Step> reorder = plan_redistribute(
      shape, mesh, layout_of("S0 S0", shape, mesh), layout_of("S0 S0", shape, mesh, {{0, {1, 0}}}));
  EXPECT_EQ(kinds_of(reorder), std::vector<StepKind>{StepKind::relabel});
}

}  // namespace
}  // namespace dtrun::dtensor
