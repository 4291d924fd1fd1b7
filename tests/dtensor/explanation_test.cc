#include "dtrun/dtensor/plan/explanation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "dtensor/layout_catalogue.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/layout/box.h"
#include "dtrun/dtensor/layout/notation.h"
#include "dtrun/dtensor/plan/crossing_explanation.h"
#include "dtrun/dtensor/plan/link_file.h"
#include "support/one_in.h"
#include "support/promptness.h"

namespace dtrun::dtensor {
namespace {

using tensors::DType;
using tensors::Shape;

PlanQuestion question(const Shape& shape, const std::vector<int>& mesh, const std::string& from,
                      const std::string& to) {
  PlanQuestion asked;
  asked.shape = shape;
  asked.mesh_shape = mesh;
  asked.from = parse_layout(from, shape, mesh);
  asked.to = parse_layout(to, shape, mesh);
  return asked;
}

TEST(ExplanationTest, ThePageSaysStepsBytesTimeAndWhyTheOthersLost) {
  PlanQuestion asked = question({1024, 4096}, {2, 2}, "[S(0), R]", "[R, S(1)]");
  asked.axis_names = {"dp", "tp"};
  asked.dtype = DType::bf16;
  EXPECT_EQ(explain_plan(asked).to_string(),
            R"(bf16[1024, 4096] on 4 ranks (dp=2, tp=2)
from [S(0), R]
to   [R, S(1)]

1 collective. Rank 0 sends 2,097,152 bytes and receives 2,097,152. Predicted: 737.1 us.

step         along  gives             sends   receives  predicted  each rank has to
local_chunk  tp     [S(0), S(1)]          0          0   209.8 us  keep one's own chunk of dim 1
all_gather   dp     [R, S(1)]     2,097,152  2,097,152   527.3 us  collect the chunks of dim 0

All ranks together send 8,388,608 bytes, the busiest one 2,097,152.
Rank 0 has 4,194,304 bytes of tensors' memory before, 4,194,304 after, and at most 10,485,760 at once.

other ways                    collectives  busiest sends  predicted  why not
over Replicate on every axis            1      4,194,304    1.47 ms  2.0x slower: 2,097,152 bytes more to send
)");
}

TEST(ExplanationTest, OtherWaysTellTheBusiestRankNotOneThatSendsNothing) {
  // One row on 4 ranks: ranks 1 to 3 have nothing to send.
  PlanQuestion asked = question({1, 4096}, {4}, "[S(0)]", "[S(1)]");
  asked.coordinate = {3};
  const PlanExplanation told = explain_plan(asked);
  ASSERT_FALSE(told.alternatives.empty());
  const ExplainedRoute& over = told.alternatives.front();
  EXPECT_EQ(over.traffic.sent, 0);
  EXPECT_EQ(over.mesh.busiest.sent, 3 * 4096 * 4);
  EXPECT_NE(told.to_string().find("49,152"), std::string::npos) << told;
  EXPECT_NE(over.why.find("36,864 bytes more to send"), std::string::npos) << over.why;
  const boost::json::value json = boost::json::parse(told.to_json());
  EXPECT_EQ(json.at("alternatives").at(0).at("bytes_sent_by_busiest").as_int64(), 3 * 4096 * 4);
}

// The rank of the other mesh gets 8 elements of 4 bytes.
TEST(ExplanationTest, AMoveBetweenDevicesNeedsAnImageOnTheHost) {
  const Shape shape = {2, 4};
  const PlacedLayout from{{1}, {0}, Layout({Replicate()})}, to{{1}, {1}, Layout({Replicate()})};
  const CrossMeshPlan plan = plan_cross_mesh(shape, from, to, 4);
  const auto memory = [&](HostImages images, int rank) {
    return crossing_memory(shape, from, to, plan, images, rank, 4);
  };
  EXPECT_EQ(memory(HostImages::none, 0), (PlanMemory{.before = 32, .after = 0, .peak = 32}));
  EXPECT_EQ(memory(HostImages::none, 1), (PlanMemory{.before = 0, .after = 32, .peak = 32}));
  EXPECT_EQ(memory(HostImages::before, 0), (PlanMemory{.before = 32, .after = 0, .peak = 64}));
  EXPECT_EQ(memory(HostImages::before, 1), (PlanMemory{.before = 0, .after = 32, .peak = 32}));
  EXPECT_EQ(memory(HostImages::after, 0), (PlanMemory{.before = 32, .after = 0, .peak = 32}));
  EXPECT_EQ(memory(HostImages::after, 1), (PlanMemory{.before = 0, .after = 32, .peak = 64}));
  EXPECT_EQ(memory(HostImages::none, 2), PlanMemory());
}

TEST(ExplanationTest, NothingToDoIsSaid) {
  const PlanExplanation same = explain_plan(question({8}, {4}, "[S(0)]", "[S(0)]"));
  EXPECT_NE(same.to_string().find("Nothing to do"), std::string::npos) << same.to_string();
  EXPECT_EQ(same.memory, (PlanMemory{.before = 8, .after = 8, .peak = 8}));
  const boost::json::value json = boost::json::parse(same.to_json());
  for (const char* const bytes : {"bytes_before", "bytes_after", "peak_bytes"})
    EXPECT_EQ(json.at(bytes).as_int64(), 2 * 4) << bytes;
  const PlanExplanation local = explain_plan(question({8}, {4}, "[R]", "[S(0)]"));
  EXPECT_NE(local.to_string().find("No communication"), std::string::npos) << local.to_string();
  EXPECT_TRUE(local.alternatives.empty());
}

TEST(ExplanationTest, JsonSaysTheSame) {
  PlanQuestion asked = question({7, 5}, {3}, "[S(0)]", "[S(1)]");
  asked.coordinate = {2};
  const boost::json::value json = boost::json::parse(explain_plan(asked).to_json());
  EXPECT_EQ(json.at("rank").as_int64(), 2);
  const auto& step = json.at("chosen").at("steps").as_array().at(0).as_object();
  EXPECT_EQ(step.at("kind").as_string(), "all_to_all");
  // 7 rows on 3 ranks: 3, 3 and 1; 5 columns: 2, 2 and 1. The last one keeps 1 of its 5.
  EXPECT_EQ(step.at("bytes_sent").as_int64(), 4 * 4);
  EXPECT_EQ(step.at("bytes_received").as_int64(), 4 * 6);
  EXPECT_FALSE(json.at("alternatives").as_array().empty());
}

TEST(ExplanationTest, WhatAllSendIsWhatAllReceive) {
  const Shape shape = {7, 5};
  const std::vector<int> mesh = {2, 3};
  const std::vector<Layout> layouts = all_layouts(shape, mesh, {ReduceOp::sum});
  for (const Layout& from : layouts) {
    for (const Layout& to : layouts) {
      const std::vector<Step> steps = plan_redistribute(shape, mesh, from, to);
      Traffic all, busiest;
      for (int rank = 0; rank < 6; ++rank) {
        Traffic own;
        for (const Traffic& step : plan_traffic(shape, mesh, steps, {rank / 3, rank % 3}, 8)) {
          own += step;
        }
        all += own;
        if (own.sent > busiest.sent) busiest = own;
      }
      const MeshTraffic whole = mesh_traffic(shape, mesh, steps, 8);
      EXPECT_EQ(all.sent, all.received) << plan_to_string(steps);
      EXPECT_EQ(whole.total, all.sent) << plan_to_string(steps);
      EXPECT_EQ(whole.busiest.sent, busiest.sent) << plan_to_string(steps);
    }
  }
}

TEST(ExplanationTest, AStepCostsNoLessThanTheBusiestReceiverTakes) {
  const Shape shape = {3, 8, 1};
  const std::vector<int> mesh = {4, 2};
  const std::vector<LinkRate> links(2, {1e-9, 1});
  const std::vector<Layout> layouts = all_layouts(shape, mesh, {ReduceOp::sum});
  for (const Layout& from : layouts) {
    for (const Layout& to : layouts) {
      for (const Step& step : plan_redistribute(shape, mesh, from, to)) {
        if (!is_collective(step.kind) || step.kind == StepKind::all_reduce) continue;
        const double ranks = mesh[static_cast<std::size_t>(step.axis)];
        const double seconds = plan_cost(shape, mesh, {step}, {1, links}).seconds;
        for (int rank = 0; rank < 8; ++rank) {
          const Traffic traffic = plan_traffic(shape, mesh, {step}, {rank / 2, rank % 2}, 1)[0];
          EXPECT_LE(static_cast<double>(traffic.received), seconds * ranks / (ranks - 1))
              << plan_to_string({step});
        }
      }
    }
  }
}

TEST(ExplanationTest, NoPlanHidesItsBytesBehindADimThatIsTooSmallToCut) {
  const PlanExplanation explanation = explain_plan(
      question({4096, 4096, 64}, {8, 8, 8, 8}, "[S(0), S(1), P, R]", "[R, S(0), S(1), S(2)]"));
  // It used to cut dim 2, of 64, by 512: rank 0 then had all, and the gather seemed to be free.
  EXPECT_LT(explanation.chosen.mesh.busiest.sent, 40'000'000) << explanation.to_string();
}

TEST(ExplanationTest, TheOtherWaysCostNoLessThanTheChosenOne) {
  const Shape shape = {64, 32, 48};
  const std::vector<int> mesh = {2, 2, 2};
  const std::vector<Layout> layouts = all_layouts(shape, mesh, {ReduceOp::sum});
  std::size_t others = 0;
  for (std::size_t i = 0; i < layouts.size(); i += 7) {
    for (std::size_t j = 0; j < layouts.size(); j += 5) {
      PlanQuestion asked;
      asked.shape = shape;
      asked.mesh_shape = mesh;
      asked.from = layouts[i];
      asked.to = layouts[j];
      asked.links = {3, {1e-6, 1e6}};
      const PlanExplanation explanation = explain_plan(asked);
      for (const ExplainedRoute& route : explanation.alternatives) {
        ++others;
        EXPECT_GE(route.cost.seconds, explanation.chosen.cost.seconds * (1 - 1e-9))
            << explanation.to_string();
        EXPECT_NE(route.why, "");
      }
    }
  }
  EXPECT_GT(others, 100U);
}

// dispatch_bench has the time.
/// The processor's time, so that what else the machine does counts for little.
std::chrono::duration<double> processor_time(const PlanQuestion& asked) {
  const std::clock_t begin = std::clock();
  EXPECT_GT(explain_plan(asked).chosen.cost.collectives, 1);
  return std::chrono::duration<double>(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
}

// A plan with its other ways: 100 ms on 65,536 ranks and 10 ms on 4,096 are promised.
TEST(ExplanationTest, FourAxesOfThousandsOfRanksAreExplainedInMilliseconds) {
  const int slower = static_cast<int>(testing_support::one_in(30));
  const PlanQuestion largest =
      question({65536, 65536}, {16, 16, 16, 16}, "[S10, S23]", "[S32, S01]");
  testing_support::expect_promptness(std::chrono::milliseconds(100) * slower,
                                     [&] { return processor_time(largest); });
  const PlanQuestion large = question({4096, 4096}, {8, 8, 8, 8}, "[S10, S23]", "[S32, S01]");
  testing_support::expect_promptness(std::chrono::milliseconds(10) * slower,
                                     [&] { return processor_time(large); });
}

TEST(ExplanationTest, LinksAreReadFromWordsAndFiles) {
  EXPECT_EQ(parse_link("shm"), kSharedMemoryLink);
  EXPECT_EQ(parse_link("2e-5:1e9"), (LinkRate{2e-5, 1e9}));
  for (const char* text : {"", "fast", "1", "1:", ":1", "0:1", "1:-1", "1e-6:1e9x"}) {
    EXPECT_THROW(parse_link(text), base::Error) << text;
  }
  const std::string path = testing::TempDir() + "links.json";
  std::ofstream(path) << R"({"dp": {"latency": 2e-5, "bytes_per_second": 1e9},
                             "*": {"latency": 1e-6, "bytes_per_second": 5e9}})";
  const std::vector<LinkRate> links = read_links(path, 2, {"dp", "tp"});
  EXPECT_EQ(links, (std::vector<LinkRate>{{2e-5, 1e9}, {1e-6, 5e9}}));
  std::ofstream(path) << R"({"dp": {"latency": 2e-5}})";
  EXPECT_THROW(read_links(path, 2, {"dp", "tp"}), base::Error);
  std::filesystem::remove(path);
}

TEST(CrossingExplanationTest, WhatAllRanksSendIsWhatTheyReceive) {
  CrossingQuestion asked;
  asked.shape = {7, 5};
  asked.from.mesh_shape = {2, 2};
  asked.from.layout = make_layout({7, 5}, {2, 2}, {Partial(), Shard(0)});
  asked.to.mesh_shape = {3};
  asked.to.first_rank = 2;
  for (const Placement& target : {Replicate(), Shard(1), Partial()}) {
    asked.to.layout = make_layout({7, 5}, {3}, {target});
    Traffic all;
    for (asked.rank = 0; asked.rank < 5; ++asked.rank) {
      const CrossingExplanation told = explain_crossing(asked);
      all += told.chosen.traffic;
      Traffic parts = told.chosen.messages;
      parts += told.chosen.before.traffic;
      parts += told.chosen.after.traffic;
      EXPECT_EQ(parts, told.chosen.traffic);
      EXPECT_GE(told.memory.peak, std::max(told.memory.before, told.memory.after));
      double least = told.chosen.plan.cost.seconds;
      for (const ExplainedCrossMesh& way : told.alternatives) {
        EXPECT_GE(way.plan.cost.seconds, least);
        least = way.plan.cost.seconds;
      }
      EXPECT_EQ(told.chosen.plan.cost,
                plan_cross_mesh({7, 5}, {{2, 2}, {0, 1, 2, 3}, asked.from.layout},
                                {{3}, {2, 3, 4}, asked.to.layout}, 4)
                    .cost);
    }
    EXPECT_GT(all.sent, 0);
    EXPECT_EQ(all.sent, all.received);
  }
}

TEST(CrossingExplanationTest, ARankOfNeitherMeshIsRefused) {
  CrossingQuestion asked;
  asked.shape = {4};
  asked.from.mesh_shape = asked.to.mesh_shape = {2};
  asked.from.layout = asked.to.layout = make_layout({4}, {2}, {Shard(0)});
  asked.to.first_rank = 4;
  asked.rank = 3;
  try {
    explain_crossing(asked);
    FAIL() << "no refusal";
  } catch (const base::Error& error) {
    EXPECT_EQ(error.code(), base::ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("0 to 1, the second one's 4 to 5"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace dtrun::dtensor
