// What explain() says, and that it is what then happens.
#include "dtrun/dtensor/ops/explain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <cstdio>
#include <functional>

#include "dtensor/carried_bytes.h"
#include "dtensor/layout_catalogue.h"
#include "dtensor/operator_results.h"
#include "dtensor/operator_samples.h"
#include "dtensor/rank_world.h"
#include "dtensor/refusal.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/move/comm_counter.h"
#include "dtrun/dtensor/move/strict_scope.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/index.h"
#include "dtrun/dtensor/ops/random.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/dtensor/ops/rows.h"
#include "dtrun/dtensor/optim/sgd.h"
#include "support/one_in.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

using collectives::ProcessGroup;
using tensors::DType;
using tensors::Shape;

TEST(ExplainTest, ARedistributionIsToldAndThenSendsJustThat) {
  test::run_ranks(4, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2}, {"dp", "tp"});
    const Tensor x = ones({7, 5}, mesh, {Shard(0), Replicate()});
    const CommCounter counter;
    const PlanExplanation told = explain(x, {Replicate(), Shard(1)});
    EXPECT_EQ(counter.get_total_counts(), 0);
    EXPECT_EQ(told.question.coordinate, mesh.coordinate());
    x.redistribute({Replicate(), Shard(1)});
    EXPECT_EQ(counter.get_total_counts(), told.chosen.cost.collectives);
    EXPECT_EQ(counter.get_total_bytes(), told.chosen.traffic.sent);
    EXPECT_NE(told.to_string().find("(dp=2, tp=2)"), std::string::npos) << told;
  });
}

TEST(ExplainTest, TheMemoryOfAMoveToAnotherMeshIsSaid) {
  run_world(2, [&](int rank) {
    const DeviceMesh first("cpu", {0}), second("cpu", {1});
    const Spec spec = make_spec(first, {Replicate()}, {32, 16}, DType::f32);
    const Tensor x(spec, tensors::zeros(spec.local_box().shape));
    const CallsExplanation told = explain([&] { x.redistribute(second, {Replicate()}); });
    const std::string memory = rank == 0 ? "2,048 bytes of tensors' memory before, 0 after, and"
                                         : "0 bytes of tensors' memory before, 2,048 after, and";
    EXPECT_NE(told.to_string().find(memory + " at most 2,048 at once."), std::string::npos) << told;
    const boost::json::value json = boost::json::parse(told.to_json());
    const boost::json::value& way = json.at("calls").at(0).at("arguments").at(0).at("way");
    EXPECT_EQ(way.at("bytes_before").as_int64(), rank == 0 ? 2048 : 0);
    EXPECT_EQ(way.at("bytes_after").as_int64(), rank == 0 ? 0 : 2048);
    EXPECT_EQ(way.at("peak_bytes").as_int64(), 2048);
  });
}

TEST(ExplainTest, AnOperatorSaysItsRuleItsArgumentsAndWhatLost) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"tp"});
    const Tensor a = ones({64, 32}, mesh, {Shard(1)});
    const Tensor b = ones({32, 16}, mesh, {Shard(1)});
    const CommCounter counter;
    const CallsExplanation told = explain([&] { return matmul(a, b); });
    EXPECT_EQ(counter.get_total_counts(), 0);
    EXPECT_EQ(told.to_string(), R"(matmul gives f32[64, 16] on (2): [S(1)]
  argument 1  f32[64, 32]  [S(1)]  to [R] by all_gather along tp: 4,096 bytes, 4.0 us
  argument 2  f32[32, 16]  [S(1)]  as it is
  along tp  R, S(1) -> S(1)       4.0 us  taken
            S(1), S(0) -> P(sum)  4.2 us  lost
            S(0), R -> S(0)       6.8 us  lost
            R, R -> R             7.8 us  lost
            P(sum), R -> P(sum)   5.7 us  not tried, and 3 more

1 collective. This rank sends 4,096 bytes. Predicted: 4.0 us.
)");
    matmul(a, b);
    EXPECT_EQ(counter.get_total_counts(), told.collectives());
    EXPECT_EQ(counter.get_total_bytes(), told.bytes_sent());
    const boost::json::value json = boost::json::parse(told.to_json());
    EXPECT_EQ(json.at("calls").at(0).at("op").as_string(), "matmul");
    EXPECT_FALSE(json.at("calls").at(0).at("axes").at(0).at("lost").as_array().empty());
  });
}

/// The inputs of a sample: the first one lies as `first`, the others as `others`, along each axis
/// for which they have the dim or the dtype.
Tensors inputs_laid(const OperatorSample& sample, const DeviceMesh& mesh, const Placements& first,
                    const Placements& others) {
  Tensors inputs;
  for (const Tensor& input : sample.inputs) {
    Placements placements = inputs.empty() ? first : others;
    for (Placement& wanted : placements) {
      const bool fits = wanted.is_shard()     ? input.dim() > wanted.dim()
                        : wanted.is_partial() ? input.dtype() == DType::f64
                                              : true;
      if (!fits) wanted = Replicate();
    }
    inputs.push_back(distribute_tensor(input, mesh, placements, {.source_rank = -1}));
  }
  return inputs;
}

/// Whether it threw that the arguments are invalid.
bool is_call_refused(const std::function<void()>& call) {
  try {
    call();
    return false;
  } catch (const base::Error& error) {
    EXPECT_EQ(error.code(), base::ErrorCode::kInvalidArgument) << error.what();
    return true;
  }
}

/// How many calls there were, and of which kinds.
struct ToldCalls {
  std::size_t all = 0, sending = 0, refused = 0;
  std::size_t carried = 0;  ///< that send, and whose bytes the transport carries for each rank
};

/// As the counter and the transport count them. Collective.
void expect_bytes_as_told(const std::function<void()>& call, const DeviceMesh& mesh,
                          ToldCalls& calls) {
  CallsExplanation told;
  const bool is_refused = is_call_refused([&] { told = explain(call); });
  const CommCounter counter;
  const std::int64_t before = bytes_carried(mesh);
  EXPECT_EQ(is_call_refused(call), is_refused);
  const std::int64_t carried = bytes_carried(mesh) - before;
  ++calls.all;
  calls.refused += is_refused ? 1 : 0;
  const bool is_sending = counter.get_total_counts() > 0;
  calls.sending += is_sending ? 1 : 0;
  if (is_refused) return;
  EXPECT_EQ(counter.get_total_counts(), told.collectives()) << counter << told;
  EXPECT_EQ(counter.get_total_bytes(), told.bytes_sent()) << counter << told;
  // More than two ranks share the work of an all_reduce out among them.
  if (mesh.size(0) > 2 && counter.get_comm_counts().contains("all_reduce")) return;
  EXPECT_EQ(carried, told.bytes_sent()) << counter << told;
  calls.carried += is_sending ? 1 : 0;
}

enum class Way { there, there_and_back };

/// Of one in so many of the pairs of layouts that the first operand and the others can have.
ToldCalls expect_every_operator_as_told(const std::vector<int>& mesh_shape, std::size_t one_in,
                                        Way way) {
  const std::vector<OperatorSample> samples = operator_samples(6, 4);
  const std::vector<Placements> all = all_placements(2, mesh_shape.size(), {ReduceOp::sum});
  int world = 1;
  for (const int size : mesh_shape) world *= size;
  ToldCalls calls;
  test::run_ranks(world, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, mesh_shape);
    ToldCalls own;
    std::size_t pair = 0;
    for (const OperatorSample& sample : samples) {
      for (const Placements& first : all) {
        for (const Placements& others : all) {
          if (sample.inputs.size() == 1 && others != first) continue;
          if (pair++ % one_in != 0) continue;
          SCOPED_TRACE(sample.name + " of " + placements_to_string(first) + " and " +
                       placements_to_string(others));
          const Tensors inputs = inputs_laid(sample, mesh, first, others);
          const auto call = [&] {
            way == Way::there ? void(sample.run(inputs)) : void(results_of(sample, inputs));
          };
          expect_bytes_as_told(call, mesh, own);
        }
      }
    }
    if (group.rank() == 0) calls = own;
  });
  std::printf(
      "%zu operators, %zu calls: %zu communicate, %zu of them by the transport's count, "
      "%zu are refused\n",
      samples.size(), calls.all, calls.sending, calls.carried, calls.refused);
  EXPECT_LT(calls.refused, calls.all / 20);
  return calls;
}

TEST(ExplainTest, EveryOperatorSendsJustTheBytesThatAreTold) {
  const ToldCalls calls =
      expect_every_operator_as_told({2}, testing_support::one_in(2), Way::there);
  EXPECT_GT(calls.sending, 500U / testing_support::one_in(2));
  EXPECT_EQ(calls.carried, calls.sending);
}

TEST(ExplainTest, EveryOperatorOfThreeRanksSendsJustTheBytesThatAreTold) {
  const ToldCalls calls =
      expect_every_operator_as_told({3}, testing_support::one_in(10), Way::there);
  EXPECT_GT(calls.carried, 200U / testing_support::one_in(10));
}

TEST(ExplainTest, EveryOperatorOnTwoAxesSendsJustTheBytesThatAreTold) {
  const ToldCalls calls =
      expect_every_operator_as_told({2, 2}, 7 * testing_support::one_in(10), Way::there);
  EXPECT_GT(calls.sending, 500U / testing_support::one_in(10));
  EXPECT_EQ(calls.carried, calls.sending);
}

TEST(ExplainTest, EveryOperatorsWayBackSendsJustTheBytesThatAreTold) {
  const std::size_t one_in = testing_support::one_in(5);
  const ToldCalls on_line = expect_every_operator_as_told({2}, 3 * one_in, Way::there_and_back);
  EXPECT_GT(on_line.sending, 300U / one_in);
  EXPECT_EQ(on_line.carried, on_line.sending);
  const ToldCalls on_grid = expect_every_operator_as_told({2, 2}, 61 * one_in, Way::there_and_back);
  EXPECT_GT(on_grid.sending, 200U / one_in);
  EXPECT_EQ(on_grid.carried, on_grid.sending);
}

// Which operands want a gradient decides how an operator is laid out.
TEST(ExplainTest, AStepIsToldAsItIsThenDone) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor x = ones({8, 6}, mesh, {Shard(0)}).requires_grad_();
    const Tensor w = ones({6, 4}, mesh, {Replicate()}).requires_grad_();
    const Tensor before = softmax(x, 0);
    const auto step = [&] { matmul(softmax(x, 0), w).sum().backward(); };
    const CallsExplanation told = explain(step);
    // Nothing is left of it: no gradient, and the graphs of before still have what they saved.
    EXPECT_FALSE(x.grad().defined());
    EXPECT_FALSE(w.grad().defined());
    explain([&] { before.sum().backward(); });
    before.sum().backward();
    x.set_grad({});
    const CommCounter counter;
    step();
    EXPECT_EQ(counter.get_total_counts(), told.collectives()) << counter << told;
    EXPECT_EQ(counter.get_total_bytes(), told.bytes_sent()) << counter << told;
    EXPECT_GT(told.collectives(), 0);
    EXPECT_EQ(x.grad().full_tensor().shape(), (Shape{8, 6}));

    // What an operator in place makes of a graph is taken back, too.
    const Tensor y = x * 3;
    explain([&] { y.mul_(w.sum()).add_(x).sum().backward(); });
    EXPECT_EQ(grad({y.sum()}, {x})[0].full_tensor().to_vector(), std::vector<double>(48, 3));
  });
}

TEST(ExplainTest, ElementsThatMoveAlongACutDimAreTold) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"tp"});
    const Tensor x = ones({4, 6}, mesh, {Shard(0)});
    const CommCounter counter;
    const CallsExplanation told = explain([&] { flip(x, {0}); });
    EXPECT_EQ(counter.get_total_counts(), 0);
    EXPECT_TRUE(told.to_string().starts_with("flip gives f32[4, 6] on (2): [S(0)]\n")) << told;
    EXPECT_NE(told.to_string().find("its dim 0 moves by all_to_all along tp: 48 bytes, 3.0 us"),
              std::string::npos)
        << told;
    const boost::json::value json = boost::json::parse(told.to_json());
    const boost::json::value& way = json.at("calls").at(0).at("arguments").at(0).at("way");
    EXPECT_EQ(way.at("steps").as_string(), "all_to_all along tp");
    EXPECT_EQ(way.at("bytes_sent").as_int64(), 48);
    EXPECT_EQ(way.at("bytes_received").as_int64(), 48);
  });
}

TEST(ExplainTest, AllRanksWaitForTheOneThatMovesMost) {
  test::run_ranks(6, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {3, 2});
    // Rows: 2, 2 and none. Columns: 2 and 1, so that the first ranks have 4 elements.
    const Tensor x = ones({4, 3}, mesh, {Shard(0), Shard(1)});
    const double of_four = kSharedMemoryLink.latency + 16 / kSharedMemoryLink.bytes_per_second;
    for (const auto& call :
         {std::function([&] { flip(x, {0}); }), std::function([&] { roll(x, {2}, {0}); })}) {
      const CallsExplanation told = explain(call);
      EXPECT_DOUBLE_EQ(told.seconds(), of_four) << told;
      const std::int64_t own = mesh.rank() >= 4 ? 0 : mesh.rank() % 2 == 0 ? 16 : 8;
      EXPECT_EQ(told.bytes_sent(), own) << told;
      const CommCounter counter;
      call();
      EXPECT_EQ(counter.get_total_bytes(), own);
    }
  });
}

/// Of a call that brings elements onto the mesh: nothing is sent, and then just what was told.
void expect_entry_as_told(const std::function<void()>& call, int collectives) {
  const CommCounter counter;
  const CallsExplanation told = explain(call);
  EXPECT_EQ(counter.get_total_counts(), 0);
  call();
  EXPECT_EQ(told.bytes_sent(), counter.get_total_bytes()) << counter << told;
  EXPECT_EQ(told.collectives(), collectives) << told;
  if (collectives > 0) {
    EXPECT_GT(told.seconds(), 0) << told;
  }
}

TEST(ExplainTest, WhatComesOntoAMeshIsTold) {
  test::run_ranks(6, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {3, 2}, {"dp", "tp"});
    const Tensor x = ones({7, 5});
    for (const Layout& layout : all_layouts({7, 5}, {3, 2}, {ReduceOp::sum})) {
      SCOPED_TRACE(layout.to_string());
      for (const int source : {0, 1, -1}) {
        expect_entry_as_told(
            [&] {
              distribute_tensor(x, mesh, layout.placements(),
                                {.source_rank = source, .shard_order = layout.order()});
            },
            source < 0 ? 0 : 2);
      }
      const Tensor part = distribute_tensor(x, mesh, layout.placements(),
                                            {.source_rank = -1, .shard_order = layout.order()});
      const int replicates =
          static_cast<int>(std::ranges::count(layout.placements(), Placement(Replicate())));
      expect_entry_as_told(
          [&] {
            Tensor::from_local(part.to_local(), mesh, layout.placements(),
                               {.shape = x.shape(),
                                .has_shape = true,
                                .run_check = true,
                                .shard_order = layout.order()});
          },
          1 + replicates);
    }
    const CallsExplanation told = explain([&] {
      distribute_tensor(ones({4, 6}), mesh, {Replicate(), Shard(1)});
    });
    const std::string sent = group.rank() == 0 ? "144" : group.rank() == 1 ? "96" : "0";
    EXPECT_EQ(told.to_string(),
              "distribute_tensor gives f32[4, 6] on (3, 2): [R, S(1)]\n"
              "  argument 1  f32[4, 6]  rank 0's  to [R, S(1)] by scatter along tp, then broadcast "
              "along dp: " +
                  sent + " bytes, 6.0 us\n\n2 collectives. This rank sends " + sent +
                  " bytes. Predicted: 6.0 us.\n");
    const boost::json::value json = boost::json::parse(told.to_json());
    const boost::json::value& argument = json.at("calls").at(0).at("arguments").at(0);
    EXPECT_EQ(argument.at("now").as_string(), "rank 0's");
    EXPECT_EQ(argument.at("way").at("steps").as_string(),
              "scatter along tp, then broadcast along dp");
    EXPECT_EQ(std::to_string(argument.at("way").at("bytes_sent").as_int64()), sent);
  });
}

// One rank alone: explain() is not collective.
TEST(ExplainTest, ACheckOfPartsIsToldByOneRankAlone) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"tp"});
    if (group.rank() == 1) return;
    const CallsExplanation told = explain([&] {
      Tensor::from_local(ones({4, 6}), mesh, {Replicate()}, {.run_check = true});
    });
    EXPECT_TRUE(told.to_string().starts_with(
        "from_local gives f32[4, 6] on (2): [R]\n  argument 1  f32[4, 6]  each rank's  to [R] by "
        "all_gather of shapes, then broadcast along tp: 376 bytes, "))
        << told;
  });
}

TEST(ExplainTest, TheOtherWaysToAnotherMeshAreToldWithWhyTheyLost) {
  run_world(4, [&](int rank) {
    const DeviceMesh first("cpu", {0, 1}), second("cpu", {{2}, {3}}, {"dp", "tp"});
    const Tensor x = rank < 2 ? Tensor(make_spec(first, {Partial()}, {64, 16}, DType::f32),
                                       tensors::ones({64, 16}))
                              : empty({64, 16}, first, {Partial()});
    const CallsExplanation told = explain(x, second, {Replicate(), Replicate()});
    const std::string page = told.to_string();
    EXPECT_NE(page.find("other ways"), std::string::npos) << page;
    EXPECT_NE(page.find("x slower"), std::string::npos) << page;
    const boost::json::value json = boost::json::parse(told.to_json());
    const boost::json::value& way = json.at("calls").at(0).at("arguments").at(0).at("way");
    const auto& others = way.at("alternatives").as_array();
    ASSERT_GE(others.size(), 2U) << page;
    for (const boost::json::value& other : others) {
      EXPECT_GE(other.at("seconds").as_double(), way.at("seconds").as_double());
      EXPECT_NE(other.at("steps").as_string(), way.at("steps").as_string());
      EXPECT_FALSE(other.at("why_not").as_string().empty());
      EXPECT_NE(page.find(other.at("steps").as_string().c_str()), std::string::npos) << page;
    }
    const std::int64_t before = bytes_carried(first);
    const CommCounter counter;
    x.redistribute(second, {Replicate(), Replicate()});
    EXPECT_EQ(counter.get_total_bytes(), told.bytes_sent()) << before << counter << told;
  });
}

TEST(ExplainTest, TheOtherWaysOfARedistributionAreToldBetweenOperators) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"tp"});
    const Tensor x = ones({64, 32}, mesh, {Shard(1)});
    const std::string page = explain([&] { x.redistribute({Shard(0)}); }).to_string();
    EXPECT_NE(page.find("  over Replicate on every axis            1          4,096     4.5 us  "
                        "1.3x slower: 2,048 bytes more to send\n"),
              std::string::npos)
        << page;
    // An operator's operands have rules in their place.
    EXPECT_EQ(explain([&] { matmul(x, x.t()); }).to_string().find("other ways"), std::string::npos);
  });
}

// PyTorch's forward_dtype and backward_dtype: docs/dtensor.md.
TEST(ExplainTest, ACastBeforeAMoveHalvesItsBytesBothWays) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor x = ones({8, 6}, mesh, {Shard(0)}).requires_grad_();
    const auto there_and_back = [&](DType dtype) {
      return explain([&] {
               const Tensor y = x.to(dtype).redistribute({Shard(1)});
               grad({y}, {x}, {ones_like(y)});
             })
          .bytes_sent();
    };
    EXPECT_EQ(there_and_back(DType::f32), 2 * 4 * 12);
    EXPECT_EQ(there_and_back(DType::bf16), 2 * 2 * 12);
    // Terms are added before they are rounded, unless a program rounds each rank's.
    const Tensor terms = ones({8, 6}, mesh, {Partial()});
    const auto sum_of = [&](const std::function<Tensor()>& cast) {
      return explain([&] { cast().redistribute({Replicate()}); }).bytes_sent();
    };
    EXPECT_EQ(sum_of([&] { return terms.to(DType::bf16); }), 4 * 48);
    EXPECT_EQ(sum_of([&] {
                return Tensor::from_local(terms.to_local().to(DType::bf16), mesh, {Partial()});
              }),
              2 * 48);
  });
}

TEST(ExplainTest, AProgramOfSeveralOperatorsIsToldInItsOrder) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor a = ones({8, 6}, mesh, {Shard(1)});
    const auto program = [&] { softmax(a, 1).redistribute({Shard(0)}).sum().full_tensor(); };
    const CallsExplanation told = explain(program);
    const CommCounter counter;
    const StrictScope strict;  // of which the explanation knows nothing
    EXPECT_EQ(explain(program).to_string(), told.to_string());
    EXPECT_EQ(counter.get_total_counts(), 0);
    std::vector<std::string> ops;
    for (const ExplainedCall& call : told.calls) ops.push_back(call.op + "/" + call.part_of);
    EXPECT_EQ(ops.back(), "redistribute/full_tensor") << told;
    EXPECT_NE(told.to_string().find("(part of softmax)"), std::string::npos) << told;
  });
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor a = ones({8, 6}, mesh, {Shard(1)});
    const auto program = [&] { softmax(a, 1).redistribute({Shard(0)}).sum().full_tensor(); };
    const CallsExplanation told = explain(program);
    const CommCounter counter;
    program();
    EXPECT_EQ(counter.get_total_counts(), told.collectives()) << counter << told;
    EXPECT_EQ(counter.get_total_bytes(), told.bytes_sent()) << counter << told;
  });
}

TEST(ExplainTest, NothingIsWrittenAndNoRandomNumberIsTaken) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor a = ones({8, 6}, mesh, {Shard(1)}), b = ones({8, 6}, mesh, {Shard(0)});
    const Tensor plain = Tensor(tensors::ones({3}));
    const RandomState before = random_state();
    // On one rank only: it is not collective.
    if (group.rank() == 0) {
      const CallsExplanation told = explain([&] {
        a.add_(b);
        a.mul_(2);
        a.zero_();
        plain.add_(1);
        dropout(a, {.p = 0.5, .training = true});
      });
      EXPECT_GE(told.collectives(), 1) << told;
    }
    EXPECT_EQ(random_state(), before);
    EXPECT_EQ(plain.to_vector()[0], 1);
    EXPECT_EQ(a.full_tensor().to_vector(), std::vector<double>(48, 1));
  });
}

TEST(ExplainTest, ACheckpointsWayBackIsTold) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor x = ones({4, 4}, mesh, {Shard(0)}), w = ones({4, 4}, mesh, {Replicate()});
    w.requires_grad_();
    const auto program = [&] {
      const auto f = [](const Tensor& hidden) { return hidden.redistribute({Shard(1)}) * 2; };
      checkpoint(f, matmul(x, w)).sum().backward();
    };
    const CallsExplanation told = explain(program);
    EXPECT_FALSE(w.grad().defined());
    const CommCounter counter;
    program();
    EXPECT_TRUE(w.grad().defined());
    EXPECT_EQ(counter.get_total_counts(), told.collectives()) << counter << told;
    EXPECT_EQ(counter.get_total_bytes(), told.bytes_sent()) << counter << told;
  });
}

TEST(ExplainTest, GradientsStayWhateverScopesStandWithin) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor w = ones({4}, mesh, {Shard(0)}).requires_grad_();
    const Tensor y = w * 3, z = w * 3;
    y.retain_grad();
    z.retain_grad();
    y.sum().backward({.retain_graph = true});
    // On one rank only: it is not collective.
    if (group.rank() == 0) {
      explain([&] {
        (y + z).sum().backward();
        EXPECT_TRUE(z.grad().defined()) << "what a rehearsed program sees differs from a real one";
      });
      EXPECT_FALSE(z.grad().defined());
      explain([&] {
        const StrictScope strict;
        (w * 5).sum().backward();
        EXPECT_TRUE(distribute_tensor(ones({4}), mesh, {Shard(0)}).defined());
      });
      optim::SGD optimizer({w}, {.lr = 1});
      expect_refused([&] { explain([&] { optimizer.step(); }); }, "explain_step()",
                     base::ErrorCode::kUsage);
    }
    EXPECT_EQ(w.grad().full_tensor().to_vector(), std::vector<double>(4, 3));
    EXPECT_EQ(w.full_tensor().to_vector(), std::vector<double>(4, 1));
    EXPECT_EQ(y.grad().full_tensor().to_vector(), std::vector<double>(4, 1));
  });
}

TEST(ExplainTest, AGradientIsKeptOfWhatAnOperatorInPlaceMade) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor w = ones({4}, mesh, {Shard(0)}).requires_grad_();
    const Tensor y = w * 3;
    y.retain_grad();
    if (group.rank() == 0) {
      explain([&] {
        y.mul_(2);
        y.mul_(2);
        y.sum().backward();
        EXPECT_EQ(y.grad().shape(), (Shape{4}));
      });
      EXPECT_FALSE(y.grad().defined());
    }
    y.sum().backward();
    EXPECT_EQ(y.grad().full_tensor().to_vector(), std::vector<double>(4, 1));
  });
}

TEST(ExplainTest, AGradientThatIsNoMoreKeptIsNotMoved) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor w = ones({1}, mesh, {Replicate()}).requires_grad_();
    const Tensor many = ones({64}, mesh, {Replicate()}), cut = ones({64}, mesh, {Shard(0)});
    const auto made = [&] {
      const Tensor y = w + many;
      y.retain_grad();
      return y;
    };
    const auto step = [&](const Tensor& y) {
      y.mul_(cut);
      y.sum().backward();
    };
    const Tensor told = made(), done = made();
    const CallsExplanation explained = explain([&] { step(told); });
    const CommCounter counter;
    step(done);
    EXPECT_EQ(counter.get_total_bytes(), explained.bytes_sent()) << counter << explained;
  });
}

TEST(ExplainTest, ASecondGradientOfProductsIsTold) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor target = full({2}, 3.0, mesh, {Replicate()});
    const Tensor list = distribute_tensor(tensor({0, 1, 0, 1}), mesh, {Replicate()});
    const Tensor factors = full({4}, 2.0, mesh, {Shard(0)}).requires_grad_();
    const auto step = [&] {
      const Tensor all = factors.redistribute({Replicate()});
      const Tensor product = scatter_reduce(target, 0, list, all, ScatterReduce::prod);
      sum(grad({sum(product)}, {factors}, {}, {.create_graph = true})[0]).backward();
    };
    const CallsExplanation told = explain(step);
    const CommCounter counter;
    step();
    EXPECT_EQ(counter.get_total_bytes(), told.bytes_sent()) << counter << told;
  });
}

TEST(ExplainTest, WhatDoesNotFitIsRefusedAsTheCallItself) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor a = ones({8, 6}, mesh, {Shard(1)});
    EXPECT_THROW(explain(a, {Shard(2)}), base::Error);
    EXPECT_THROW(explain([&] { matmul(a, a); }), base::Error);
    EXPECT_EQ(a.full_tensor().to_vector()[0], 1) << "the rehearsal has not ended";
  });
}

}  // namespace
}  // namespace dtrun::dtensor
