// One job over two hosts of the lab, each with its own network, hostname, pids and /dev/shm: one
// dtrun on each.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "multinode/two_hosts.h"
#include "support/promptness.h"

namespace dtrun {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::CommandResult;
using testing_support::run_command;

TEST_F(TwoHostsTest, BothTransportsCarryBytesAndTheSumIsRight) {
  const auto first = start(1, {DTRUN_BIN "/transports"});
  const auto second = start(2, {DTRUN_BIN "/transports"});
  const CommandResult results[] = {first->finish(), second->finish()};
  for (int node = 0; node < 2; ++node) {
    EXPECT_EQ(results[node].exit_code, 0) << results[node].describe();
    for (int rank = 2 * node; rank < 2 * node + 2; ++rank)
      EXPECT_THAT(results[node].out, HasSubstr("rank " + std::to_string(rank) +
                                               " sum right shared memory some tcp some\n"))
          << results[node].describe();
  }
}

// What was on its way is sent again by the kernel, on each of the connections of two ranks.
TEST_F(TwoHostsTest, ALinkThatIsCutAndHealedLosesNothingOfStripedMessages) {
  options_.environment["DTRUN_CONNECTIONS_PER_PEER"] = "4";
  options_.environment["DTRUN_LOGS"] = "+collectives";
  const std::string end = folder_ + "/end";
  // Where much else runs, to heal the link may take longer than the 13 s after which a node's guard
  // ends its ranks. The ranks' own connections bear half a minute.
  const std::vector<std::string> line = {"--rdzv_conf", "keep_alive_interval=100",
                                         DTRUN_BIN "/transports", end};
  const auto first = start(1, line), second = start(2, line);
  ASSERT_TRUE(first->wait_for_output("the first sum is there")) << second->finish().describe();
  for (const char* const how : {"--silent", ""}) {
    std::vector<std::string> cut = {"hosts-cut", how, "2"};
    std::erase(cut, "");
    in_lab(cut);
    in_lab({"hosts-heal", "2"});
  }
  std::ofstream(end) << "now";
  const CommandResult results[] = {first->finish(), second->finish()};
  for (int node = 0; node < 2; ++node) {
    EXPECT_EQ(results[node].exit_code, 0) << results[node].describe();
    for (int rank = 2 * node; rank < 2 * node + 2; ++rank)
      EXPECT_THAT(results[node].out, HasSubstr("rank " + std::to_string(rank) + " sum right "));
    EXPECT_THAT(results[node].err, HasSubstr("take 4 connections: DTRUN_CONNECTIONS_PER_PEER"));
  }
}

// "loss: 1.5" of rank 0's last line; NaN where there is none.
double loss_of(const CommandResult& result) {
  const std::size_t at = result.out.rfind("loss: ");
  return at == std::string::npos ? std::nan("") : std::strtod(result.out.c_str() + at + 6, nullptr);
}

TEST_F(TwoHostsTest, AGptLearnsTheSameOverTwoHostsAsOnOneRank) {
  const std::vector<std::string> training = {
      DTRUN_BIN "/train_gpt", "--steps", "20", "--width", "32", "--sample", "0"};
  std::vector<std::string> alone = {DTRUN_BIN "/dtrun", "--nproc_per_node=1"};
  alone.insert(alone.end(), training.begin(), training.end());
  const double loss = loss_of(run_command(alone));
  EXPECT_GT(loss, 1);
  for (const char* const mesh : {"dp=2,tp=2", "fsdp=4", "pp=2,dp=2"}) {
    std::vector<std::string> line = training;
    line.insert(line.end(), {"--mesh", mesh});
    const auto first = start(1, line), second = start(2, line);
    const CommandResult results[] = {first->finish(), second->finish()};
    EXPECT_NEAR(loss_of(results[0]), loss, 2e-5) << mesh << results[0].describe();
    EXPECT_EQ(results[1].exit_code, 0) << mesh << results[1].describe();
  }
}

// Each host has a /dev/shm of its own; the rest of the file system is the same on both.
TEST_F(TwoHostsTest, ATrainingOnDisksOfEachHostsOwnIsToldSoAtItsStart) {
  const std::vector<std::string> training = {DTRUN_BIN "/train_gpt",
                                             "--steps",
                                             "4",
                                             "--checkpoint-every",
                                             "2",
                                             "--sample",
                                             "0",
                                             "--width",
                                             "32"};
  const auto trained = [&](const std::string& folder) {
    std::vector<std::string> line = training;
    line.insert(line.end(), {"--checkpoint", folder});
    const auto first = start(1, line), second = start(2, line);
    return std::array{first->finish(), second->finish()};
  };
  for (const CommandResult& result : trained("/dev/shm/runs")) {
    EXPECT_NE(result.exit_code, 0) << result.describe();
    EXPECT_THAT(result.err, AllOf(HasSubstr("does not see /dev/shm/runs/.write-check."),
                                  HasSubstr("a folder that all nodes share")))
        << result.describe();
  }
  for (const char* const host : {"1", "2"}) {
    const CommandResult left =
        run_command({lab("hosts-exec"), host, "sh", "-c", "ls -A /dev/shm/runs || true"}, options_);
    EXPECT_EQ(left.out, "") << left.describe();
  }
  const std::string shared = folder_ + "/runs";
  for (const CommandResult& result : trained(shared))
    EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_TRUE(std::filesystem::exists(shared + "/step-4/manifest.json"));
}

struct LayoutPart {
  const char* name;
  int moves;
};
class LayoutsOnTwoHostsTest : public TwoHostsTest,
                              public testing::WithParamInterface<LayoutPart> {};

TEST_P(LayoutsOnTwoHostsTest, EveryLayoutGoesToEveryOtherOverBothTransportsAtOnce) {
  const std::vector<std::string> line = {DTRUN_BIN "/layouts", GetParam().name};
  const auto first = start(1, line), second = start(2, line);
  const CommandResult results[] = {first->finish(), second->finish()};
  for (int node = 0; node < 2; ++node) {
    EXPECT_EQ(results[node].exit_code, 0) << results[node].describe();
    for (int rank = 2 * node; rank < 2 * node + 2; ++rank)
      EXPECT_THAT(results[node].out, HasSubstr(fmt::format("rank {} {} right {}\n", rank,
                                                           GetParam().name, GetParam().moves)))
          << results[node].describe();
  }
}
INSTANTIATE_TEST_SUITE_P(Parts, LayoutsOnTwoHostsTest,
                         testing::Values(LayoutPart{"pairs", 849}, LayoutPart{"orders", 163},
                                         LayoutPart{"ragged", 243}, LayoutPart{"meshes", 1245},
                                         LayoutPart{"async", 1618}),
                         [](const auto& part) { return std::string(part.param.name); });

TEST_F(TwoHostsTest, TheDTensorDemosScriptRunsFourRanksOnEach) {
  options_.environment["BIN"] = DTRUN_BIN;
  const auto started = [&](int node) {
    return Command(
        {lab("hosts-exec"), std::to_string(node), DTRUN_SOURCE_DIR "/examples/run_dtensor_demo.sh",
         "full", "--cpu", "--nnodes=2", "--node_rank=" + std::to_string(node - 1),
         "--master_addr=10.88.0.1", "--master_port=29500"},
        options_);
  };
  Command first = started(1), second = started(2);
  const CommandResult results[] = {first.finish(), second.finish()};
  EXPECT_THAT(results[0].out, HasSubstr("\n=== All parts ran on 8 ranks ===\n"));
  for (int node = 0; node < 2; ++node) {
    EXPECT_EQ(results[node].exit_code, 0) << results[node].describe();
    for (int rank = 4 * node; rank < 4 * node + 4; ++rank)
      EXPECT_THAT(results[node].out,
                  AllOf(HasSubstr(fmt::format("[Rank {}] cut along both axes: global [8, 8], local "
                                              "[4, 2], placements [S(0), S(1)]\n",
                                              rank)),
                        HasSubstr(fmt::format("[Rank {}] all_reduce: tensor([36., 36.])\n", rank))))
          << results[node].describe();
  }
}

/// Behind the words; NaN where they are not there.
double time_behind(const std::string& text, const std::string& words) {
  const std::size_t at = text.find(words);
  return at == std::string::npos ? std::nan("")
                                 : std::strtod(text.c_str() + at + words.size(), nullptr);
}

// Over shared memory and TCP at once. Each rank once; the ranks of both hosts are told.
TEST_F(TwoHostsTest, ARankKilledInARedistributionIsNamedOnBothHostsWithinASecond) {
  for (int killed = 0; killed < 4; ++killed) {
    SCOPED_TRACE(killed);
    testing_support::expect_promptness(std::chrono::seconds(1), [&] {
      const std::vector<std::string> line = {DTRUN_BIN "/layouts", "forever",
                                             std::to_string(killed)};
      const auto first = start(1, line), second = start(2, line);
      const CommandResult results[] = {first->finish(), second->finish()};
      const std::string all = results[0].out + results[1].out;
      const double end = time_behind(all, fmt::format("rank {} ends at ", killed));
      double last = 0;
      for (int rank = 0; rank < 4; ++rank) {
        if (rank == killed) continue;
        const std::string words = fmt::format("rank {} told at ", rank);
        last = std::max(last, time_behind(all, words) - end);
        const std::string told = all.substr(std::min(all.size(), all.find(words)));
        EXPECT_THAT(told.substr(0, told.find('\n')), HasSubstr(fmt::format("rank {}", killed)))
            << results[0].describe() << results[1].describe();
      }
      EXPECT_FALSE(std::isnan(end) || std::isnan(last)) << all;
      return std::chrono::duration<double>(last);
    });
  }
}

TEST_F(TwoHostsTest, ARankKilledOnOneHostFailsTheJobOnBothAndIsNamedOnBoth) {
  const auto first = start(1, {DTRUN_BIN "/misbehave", "kill-in-collective", "3"});
  const auto second = start(2, {DTRUN_BIN "/misbehave", "kill-in-collective", "3"});
  for (const CommandResult& result : {second->finish(), first->finish()}) {
    EXPECT_EQ(result.exit_code, 137) << result.describe();
    EXPECT_THAT(result.err, testing::AnyOf(HasSubstr("rank 3"), HasSubstr("rank      : 3 (")))
        << result.describe();
    EXPECT_LT(result.elapsed.count(), 20.0) << result.describe();
  }
}

// Only its own host's dtrun can look at it; the ranks there do not wait. The other host's tells of
// the wait before the rank is ended, because it is less patient.
TEST_F(TwoHostsTest, ARankThatDoesNotComeIsNamedAndEndedOnItsOwnHost) {
  const auto first = start(1, {"--progress-timeout=1s", DTRUN_BIN "/flight_worker", "hang"}, 1);
  const auto second = start(
      2, {"--progress-timeout=4s", "--on-progress-timeout=end", DTRUN_BIN "/flight_worker", "hang"},
      1);
  const CommandResult results[] = {first->finish(), second->finish()};
  for (const CommandResult& result : results)
    EXPECT_EQ(result.exit_code, 128 + SIGABRT) << result.describe();
  EXPECT_THAT(results[0].err, HasSubstr("rank 0 has waited for")) << results[0].describe();
  EXPECT_THAT(results[1].err,
              testing::AllOf(HasSubstr("all_reduce #2 of group 'world': rank 0, on another node, "
                                       "has waited for"),
                             HasSubstr("rank 1 has not come; rank 1 last called barrier #1")))
      << results[1].describe();
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  // By dtrun's handler of crashes, for which a sanitizer has one of its own.
  EXPECT_THAT(results[1].err, HasSubstr("main in flight_worker")) << results[1].describe();
#endif
}

}  // namespace
}  // namespace dtrun
