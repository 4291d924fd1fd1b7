// Tensors that are redistributed again and again: what they remember, and that nothing else differs
// from the first time.
#include "move/repeated_move.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "autograd/node.h"
#include "dtensor/plan_simulator.h"
#include "dtensor/refusal.h"
#include "dtensor/vector_tensor.h"
#include "dtrun/base/log.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/move/comm_counter.h"
#include "dtrun/dtensor/move/strict_scope.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/explain.h"
#include "dtrun/dtensor/ops/index.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

using collectives::ProcessGroup;
using tensors::DType;
using tensors::Shape;

/// Whose axes have no groups before these are used.
DeviceMesh two_by_two_without_groups(const ProcessGroup& group) {
  return DeviceMesh(group, {4}, {"world"}).unflatten("world", {2, 2}, {"node", "gpu"});
}

std::vector<double> values_of(const Shape& shape) {
  return arange(tensors::numel(shape), {.dtype = DType::f64}).to_vector();
}

/// Of values_of(shape), made without communication.
Tensor tensor_on(const DeviceMesh& mesh, const Shape& shape, const Placements& placements) {
  const Spec spec = make_spec(mesh, placements, shape, DType::f64);
  PlanSimulator simulator(shape, mesh.shape());
  simulator.fill(values_of(shape), spec.layout());
  const std::vector<double> local = simulator.local_of(mesh.rank());
  return Tensor(spec, tensors::tensor_from(local, spec.local_box().shape, DType::f64));
}

void expect_values(const Tensor& tensor, const Shape& shape) {
  const LocalTensor whole = tensors::tensor_from(values_of(shape), shape, DType::f64);
  EXPECT_EQ(difference(tensor.to_local(), cut(whole, tensor.spec().local_box()), {0, 0}), "");
}

/// The step that `x` goes at once where it goes to `placements` again.
std::optional<DirectStep> direct_step(const Tensor& x, const Placements& placements) {
  const AskedMove* const move = Graph::repeated_move(x, placements);
  return move == nullptr ? std::nullopt : move->direct;
}

TEST(RepeatedMoveTest, OneRankAloneExplainsMovesOnAMeshWhoseGroupsAreNotMade) {
  test::run_ranks(4, {.timeout = std::chrono::seconds(10)}, [](const ProcessGroup& group) {
    const DeviceMesh mesh = two_by_two_without_groups(group);
    const Tensor x = tensor_on(mesh, {4, 4}, {Shard(0), Replicate()});
    const Placements whole = {Replicate(), Replicate()};
    if (group.rank() == 0) {
      const CallsExplanation told = explain([&] {
        for (int time = 0; time < 3; ++time) x.redistribute(whole);
      });
      EXPECT_EQ(told.collectives(), 3);
      EXPECT_EQ(Graph::repeated_move(x, whole), nullptr);
    }
    group.barrier();  // no other rank has come to a move so far
    for (int time = 0; time < 3; ++time) expect_values(x.redistribute(whole), {4, 4});
  });
}

TEST(RepeatedMoveTest, AMoveThatOneRankHasExplainedIsRunByAllAlike) {
  test::run_ranks(4, {.timeout = std::chrono::seconds(10)}, [](const ProcessGroup& group) {
    const DeviceMesh mesh = two_by_two_without_groups(group);
    const Tensor x = tensor_on(mesh, {4, 4}, {Shard(0), Shard(1)});
    const auto move = [&] { return x.redistribute({Shard(1), Shard(0)}); };
    if (group.rank() == 0) explain([&] { move(); });
    for (int time = 0; time < 3; ++time) expect_values(move(), {4, 4});
  });
}

struct RepeatedStep {
  Placements from, to;
  std::optional<StepKind> direct = {};
  int axis = 0;
};

void expect_direct(const Tensor& x, const RepeatedStep& step) {
  const Shape shape = x.shape();
  SCOPED_TRACE(x.spec().to_string() + " -> " + placements_to_string(step.to));
  for (int time = 0; time < 2; ++time) {
    EXPECT_FALSE(Graph::repeated_move(x, step.to)) << time;
    expect_values(x.redistribute(step.to), shape);
  }
  EXPECT_TRUE(Graph::repeated_move(x, step.to));
  const std::optional<DirectStep> direct = direct_step(x, step.to);
  EXPECT_EQ(direct.has_value(), step.direct.has_value());
  if (direct && step.direct) {
    EXPECT_EQ(direct->kind, *step.direct);
    EXPECT_EQ(direct->axis, step.axis);
  }
  for (int time = 0; time < 2; ++time) expect_values(x.redistribute(step.to), shape);
}

TEST(RepeatedMoveTest, OneCollectiveOnRowsIsCalledDirectly) {
  const auto R = Replicate();
  const std::vector<RepeatedStep> steps = {
      {{Shard(0), R}, {R, R}, StepKind::all_gather, 0},
      {{R, Shard(0)}, {R, R}, StepKind::all_gather, 1},
      {{Shard(0), Shard(0)}, {Shard(0), R}, StepKind::all_gather, 1},  // within another cut
      {{Partial(), R}, {R, R}, StepKind::all_reduce, 0},
      {{Shard(1), Partial()}, {Shard(1), R}, StepKind::all_reduce, 1},
      {{R, Partial()}, {R, Shard(0)}, StepKind::reduce_scatter, 1},
      {{Shard(0), Partial()}, {Shard(0), Shard(0)}, StepKind::reduce_scatter, 1},
      {{R, Partial()}, {R, Shard(1)}},
      {{Shard(0), Shard(1)}, {Shard(0), R}},
      {{Shard(0), R}, {Shard(1), R}},
      {{Shard(0), Shard(1)}, {Shard(1), Shard(0)}},
  };
  test::run_ranks(4, [&](const ProcessGroup& group) {
    const DeviceMesh made(group, {2, 2});
    for (const RepeatedStep& step : steps) {
      expect_direct(tensor_on(made, {8, 6}, step.from), step);
      const DeviceMesh lazy = two_by_two_without_groups(group);
      expect_direct(tensor_on(lazy, {8, 6}, step.from), step);
      // Parts that are not of one size.
      expect_direct(tensor_on(made, {7, 6}, {Shard(0), R}), {{}, {R, R}});
    }
  });
}

// A direct step that is not the plan's tells which one is run.
TEST(RepeatedMoveTest, TheDirectStepIsRunAndNotThePlan) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor x = Tensor::from_local(ones({4}), mesh, {Partial()});
    for (int time = 0; time < 2; ++time) x.redistribute({Replicate()});
    AskedMove move = *Graph::repeated_move(x, Placements{Replicate()});
    ASSERT_TRUE(move.direct);
    EXPECT_EQ(run_move(x.spec(), move, x.local()).to_vector(), std::vector<double>(4, 2));
    move.direct->op = ReduceOp::max;
    EXPECT_EQ(run_move(x.spec(), move, x.local()).to_vector(), std::vector<double>(4, 1));
  });
}

/// Which of them `x` keeps.
std::vector<bool> kept_of(const Tensor& x, const std::vector<Placements>& moves) {
  std::vector<bool> kept;
  for (const Placements& to : moves) kept.push_back(Graph::repeated_move(x, to) != nullptr);
  return kept;
}

TEST(RepeatedMoveTest, MovesInTurnsAreEachRemembered) {
  test::run_ranks(4, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2});
    const auto R = Replicate();
    const std::vector<Placements> moves = {
        {R, R}, {Shard(1), R}, {R, Shard(0)}, {Shard(1), Shard(1)}};
    for (std::size_t turns = 1; turns <= moves.size(); ++turns) {
      const std::vector<Placements> some(moves.begin(),
                                         moves.begin() + static_cast<std::ptrdiff_t>(turns));
      const Tensor x = tensor_on(mesh, {4, 4}, {Shard(0), R});
      for (int round = 0; round < 4; ++round) {
        EXPECT_EQ(kept_of(x, some), std::vector<bool>(turns, round >= 2)) << turns;
        for (const Placements& to : some) expect_values(x.redistribute(to), {4, 4});
      }
      EXPECT_EQ(direct_step(x, moves.front())->kind, StepKind::all_gather);
    }
  });
}

TEST(RepeatedMoveTest, AMoveThatComesOnceOrAfterFourOthersIsNotRemembered) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const std::vector<Placements> moves = {
        {Replicate()}, {Shard(1)}, {Shard(2)}, {Shard(3)}, {Shard(4)}};
    const Tensor x = tensor_on(mesh, {2, 2, 2, 2, 2}, {Shard(0)});
    for (int round = 0; round < 3; ++round)
      for (const Placements& to : moves) x.redistribute(to);
    EXPECT_EQ(kept_of(x, moves), std::vector<bool>(5, false));
  });
}

TEST(RepeatedMoveTest, NoMoreThanFourAreRemembered) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const std::vector<Placements> moves = {
        {Replicate()}, {Shard(1)}, {Shard(2)}, {Shard(3)}, {Shard(4)}};
    const Tensor x = tensor_on(mesh, {2, 2, 2, 2, 2}, {Shard(0)});
    for (const Placements& to : moves)
      for (int time = 0; time < 3; ++time) expect_values(x.redistribute(to), x.shape());
    EXPECT_EQ(kept_of(x, moves), (std::vector<bool>{true, true, true, true, false}));
  });
}

TEST(RepeatedMoveTest, SetDataEndsItAndLetsTheOldMeshGo) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    auto old_mesh = std::make_unique<const DeviceMesh>(group, std::vector<int>{2});
    const std::weak_ptr<MeshBody> old = old_mesh->body();
    const Tensor x = tensor_on(*old_mesh, {4, 4}, {Shard(0)});
    for (int time = 0; time < 3; ++time) expect_values(x.redistribute({Replicate()}), {4, 4});
    EXPECT_TRUE(direct_step(x, {Replicate()}));
    const DeviceMesh mesh(group, {2});
    x.set_data(tensor_on(mesh, {6, 2}, {Shard(1)}));
    old_mesh.reset();
    EXPECT_TRUE(old.expired());
    for (int time = 0; time < 2; ++time) {
      EXPECT_FALSE(Graph::repeated_move(x, Placements{Replicate()}));
      expect_values(x.redistribute({Replicate()}), {6, 2});
    }
    // The same layout with other elements.
    x.set_data(tensor_on(mesh, {6, 2}, {Shard(1)}).mul(2));
    EXPECT_EQ(x.redistribute({Replicate()}).to_vector()[3], 6);
  });
}

TEST(RepeatedMoveTest, ADirectMoveIsPartOfTheGraphUnlessNoneIsWanted) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor w = tensor_on(mesh, {4, 2}, {Shard(0)});
    w.requires_grad_();
    for (int time = 1; time <= 4; ++time) {
      const Tensor whole = w.redistribute({Replicate()});
      EXPECT_EQ(whole.grad_fn(), "redistribute");
      whole.mul(time).sum().backward();
    }
    EXPECT_TRUE(direct_step(w, {Replicate()}));
    EXPECT_EQ(w.grad().full_tensor().to_vector(), std::vector<double>(8, 1 + 2 + 3 + 4));
    const NoGrad no_grad;
    EXPECT_FALSE(w.redistribute({Replicate()}).requires_grad());
  });
}

TEST(RepeatedMoveTest, ADirectMoveIsCountedAndAllowedAsTheFirst) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor x = tensor_on(mesh, {4, 2}, {Shard(0)});
    std::vector<std::string> counts;
    for (int time = 0; time < 4; ++time) {
      const CommCounter counter;
      x.redistribute({Replicate()});
      EXPECT_EQ(counter.get_total_counts(), 1);
      EXPECT_EQ(counter.by_operator().count("redistribute"), 1U) << counter;
      counts.push_back(counter.to_string());
    }
    EXPECT_TRUE(direct_step(x, {Replicate()}));
    EXPECT_EQ(counts, std::vector<std::string>(4, counts.front()));
    const StrictScope strict;
    expect_values(x.redistribute({Replicate()}), {4, 2});
  });
}

TEST(RepeatedMoveTest, ADirectMoveIsLoggedAsTheFirst) {
  static std::mutex mutex;
  static std::vector<std::string> lines;
  base::log::set_levels("+dtensor");
  base::log::set_writer([](const base::log::Line& line) {
    const std::lock_guard lock(mutex);
    lines.emplace_back(line.message);
  });
  const int here = __LINE__;
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor x = tensor_on(mesh, {4, 2}, {Shard(0)});
    for (int time = 0; time < 4; ++time) x.redistribute({Replicate()});  // here + 4
    EXPECT_TRUE(direct_step(x, {Replicate()}));
  });
  base::log::set_writer(nullptr);
  base::log::set_levels("");
  ASSERT_EQ(lines.size(), 8U);
  EXPECT_EQ(lines, std::vector<std::string>(8, lines.front()));
  const std::string place = "repeated_move_test.cc:" + std::to_string(here + 4);
  EXPECT_NE(lines.front().find(place), std::string::npos) << lines.front();
  EXPECT_NE(lines.front().find("all_gather along axis 0"), std::string::npos) << lines.front();
}

TEST(MoveLogTest, OperatorsThatMoveElementsOfACutDimAreLogged) {
  static std::mutex mutex;
  static std::multiset<std::string> lines;
  base::log::set_levels("+dtensor");
  base::log::set_writer([](const base::log::Line& line) {
    const std::lock_guard lock(mutex);
    lines.emplace(line.message);
  });
  test::run_ranks(3, [](const ProcessGroup& group) {
    const Tensor x = tensor_on(DeviceMesh(group, {3}, {"tp"}), {4, 2}, {Shard(0)});
    flip(x, {0, 1});
    roll(x, {1}, {0});
    flip(x, {1});                    // nothing is sent
    explain([&] { flip(x, {0}); });  // nothing is done
  });
  base::log::set_writer(nullptr);
  base::log::set_levels("");
  const std::string flipped =
      "flip, argument 1: f64[4, 2] on (3): [S(0)]: all_to_all along tp moves elements of dim 0";
  const std::string rolled = "roll" + flipped.substr(4);
  EXPECT_EQ(lines, (std::multiset<std::string>{
                       flipped, flipped + " (32 bytes sent)", flipped + " (32 bytes sent)", rolled,
                       rolled + " (16 bytes sent)", rolled + " (16 bytes sent)"}));
}

TEST(RepeatedMoveTest, AnEmptyOrderInBracesKeepsTheLine) {
  test::run_ranks(1, [](const ProcessGroup& group) {
    const Tensor x = tensor_on(DeviceMesh(group, {1}), {4, 2}, {Shard(0)});
    const std::string place = "repeated_move_test.cc:" + std::to_string(__LINE__ + 1);
    expect_refused([&] { x.redistribute({Shard(5)}, {}); }, place);
  });
}

}  // namespace
}  // namespace dtrun::dtensor
