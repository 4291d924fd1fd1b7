// Restarts and elastic membership: several dtrun on this machine, their ranks elastic_worker.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <memory>
#include <utility>

#include "launcher/elastic_node.h"
#include "launcher/launcher_job.h"
#include "launcher/living_processes.h"
#include "support/own_port.h"
#include "support/promptness.h"

namespace dtrun::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing_support::Command;
using testing_support::CommandResult;

class ElasticTest : public testing::Test {
 protected:
  ElasticTest() { job_.options().environment["DTRUN_TEST_TOKEN"] = token_; }

  ~ElasticTest() override {
    EXPECT_TRUE(all_gone_within(token_, seconds(10))) << describe_processes_with(token_);
    EXPECT_THAT(job_.left_behind(), IsEmpty());
  }

  // Its standard error comes with its output.
  std::unique_ptr<Command> start(const std::string& nodes, std::vector<std::string> rest,
                                 std::vector<std::string> program = {kWorker}) {
    std::vector<std::string> command = {"sh",
                                        "-c",
                                        "exec \"$@\" 2>&1",
                                        "sh",
                                        DTRUN_BINARY,
                                        "--nnodes=" + nodes,
                                        "--rdzv_backend=c10d",
                                        "--rdzv_endpoint=127.0.0.1:" + port_,
                                        "--rdzv_conf=last_call_timeout=0.2"};
    command.insert(command.end(), rest.begin(), rest.end());
    command.insert(command.end(), program.begin(), program.end());
    return std::make_unique<Command>(command, job_.options());
  }

  // The one that hosts, once it listens.
  std::unique_ptr<Command> start_host(const std::string& nodes, std::vector<std::string> rest = {},
                                      std::vector<std::string> program = {kWorker}) {
    rest.insert(rest.begin(), "-v");
    auto host = start(nodes, std::move(rest), std::move(program));
    EXPECT_TRUE(host->wait_for_output("hosts the rendezvous"));
    return host;
  }

  testing_support::OwnPort own_port_;
  std::string port_ = own_port_.text();
  std::string token_ = unique_token();
  LauncherJob job_;
};

TEST_F(ElasticTest, AKilledRankRestartsAllUntilTheBudgetIsSpent) {
  const auto host = start_host("2", {"--nproc_per_node=2", "--max-restarts=2"});
  const auto member = start("2", {"--nproc_per_node=2", "--max-restarts=2"});
  for (int restart = 0; restart < 3; ++restart) {
    Place first;
    for (int local_rank = 0; local_rank < 2; ++local_rank) {
      const Place zero = next_place(*host), one = next_place(*member);
      EXPECT_EQ(zero, (Place{zero.rank, 4, 0, 2, restart}));
      EXPECT_EQ(one, (Place{one.rank, 4, 1, 2, restart}));
      EXPECT_EQ(zero.budget, 2);
      // A fixed job's store stays where its nodes meet.
      EXPECT_EQ(std::to_string(zero.port), port_);
      first = one;
    }
    const pid_t victim = rank_called(first.pid, member->pid());
    ASSERT_GT(victim, 0);
    ::kill(victim, SIGKILL);
  }
  const CommandResult of_host = host->finish(), of_member = member->finish();
  EXPECT_EQ(of_host.exit_code, 137) << of_host.describe();
  EXPECT_EQ(of_member.exit_code, 137) << of_member.describe();
  EXPECT_THAT(of_host.out,
              AllOf(HasSubstr("restart 2 of 2"), HasSubstr("SIGKILL"), HasSubstr("on node 1")));
  EXPECT_THAT(of_member.out, AllOf(HasSubstr("Root Cause"), HasSubstr("exitcode  : -9"),
                                   HasSubstr("after 2 of 2 restarts")));
}

TEST_F(ElasticTest, RestartsCountedForEachNodeEndWhenOneNodesAreSpent) {
  const std::vector<std::string> options = {"--max-restarts=1", "--restart-scope=agent"};
  const auto host = start_host("2", options), member = start("2", options);
  const std::array<std::pair<int, int>, 3> restarts = {{{0, 0}, {1, 0}, {1, 1}}};
  for (std::size_t i = 0; i < restarts.size(); ++i) {
    const Place zero = next_place(*host), one = next_place(*member);
    EXPECT_EQ(zero, (Place{0, 2, 0, 2, restarts[i].first}));
    EXPECT_EQ(one, (Place{1, 2, 1, 2, restarts[i].second}));
    const pid_t victim =
        i == 0 ? rank_called(zero.pid, host->pid()) : rank_called(one.pid, member->pid());
    ASSERT_GT(victim, 0);
    ::kill(victim, SIGKILL);
  }
  const CommandResult of_host = host->finish(), of_member = member->finish();
  EXPECT_EQ(of_host.exit_code, 137) << of_host.describe();
  EXPECT_EQ(of_member.exit_code, 137) << of_member.describe();
}

TEST_F(ElasticTest, AJobThatFailsOnceEndsWellWithOneRestart) {
  const CommandResult result = job_.run(
      {"--nproc_per_node=2", "--max-restarts=3", "--log_dir=" + job_.folder() + "/logs", "sh", "-c",
       "echo $TORCHELASTIC_RESTART_COUNT $RANK $TORCHELASTIC_ERROR_FILE; "
       "[ $TORCHELASTIC_RESTART_COUNT$RANK = 01 ] && exit 5; "
       "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exec sleep 100"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("/attempt_0/1/error.json"), HasSubstr("/attempt_1/1/error.json")));
  EXPECT_THAT(result.err, AllOf(HasSubstr("restart 1 of 3"), HasSubstr("exit code 5"),
                                Not(HasSubstr("Root Cause"))));
  testing_support::run_command({"rm", "-r", job_.folder() + "/logs"});
}

TEST_F(ElasticTest, WhoAsksForRestartsGetsThemHoweverQuicklyTheRanksFail) {
  for (const char* const ranks : {"1", "2", "4", "8"}) {
    const CommandResult result = job_.run(
        {std::string("--nproc_per_node=") + ranks, "--max-restarts=3", "sh", "-c", "exit 5"});
    EXPECT_EQ(result.exit_code, 5) << result.describe();
    EXPECT_THAT(result.err, HasSubstr("the job has failed after 3 of 3 restarts"));
  }
}

TEST_F(ElasticTest, AJobThatWasStoppedAfterARestartHasNotFailed) {
  const auto node = std::make_unique<Command>(
      std::vector<std::string>{
          DTRUN_BINARY, "--max-restarts=2", "sh", "-c",
          "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 3; echo up; exec sleep 100"},
      job_.options());
  ASSERT_TRUE(node->wait_for_output("up"));
  node->signal(SIGTERM);
  EXPECT_THAT(node->finish().err, HasSubstr("the job was stopped after 1 of 2 restarts"));
}

// Whichever of its ranks is the first.
TEST_F(ElasticTest, TheSameFailureTwiceInARowEndsTheJobWhereThatIsAskedFor) {
  const auto run = [&](std::vector<std::string> options) {
    options.insert(options.begin(), {"--nproc_per_node=4", "--max-restarts=50"});
    options.insert(options.end(), {"sh", "-c", "exit 5"});
    return job_.run(options);
  };
  const CommandResult result = run({"--give-up-on=alike"});
  EXPECT_EQ(result.exit_code, 5) << result.describe();
  EXPECT_THAT(result.err, AllOf(HasSubstr("is not started again: twice in a row it has failed"),
                                HasSubstr("the job has failed after 1 of 50 restarts")));
  const CommandResult final = run({"--give-up-on=code:5", "--restart-backoff=100"});
  EXPECT_EQ(final.exit_code, 5) << final.describe();
  EXPECT_THAT(final.err, AllOf(HasSubstr("exit code 5 is among those of --give_up_on"),
                               Not(HasSubstr("restart 1"))));
}

TEST_F(ElasticTest, ARestartWaitsForItsPause) {
  const CommandResult result = job_.run({"--nproc_per_node=1", "--max-restarts=2",
                                         "--restart-backoff=0.1:0.15", "sh", "-c", "kill -9 $$"});
  EXPECT_EQ(result.exit_code, 137) << result.describe();
  EXPECT_GE(result.elapsed.count(), 0.25);
  EXPECT_THAT(result.err, AllOf(HasSubstr("restart 1 of 2 in 100 ms after this"),
                                HasSubstr("restart 2 of 2 in 150 ms after this")));
}

TEST_F(ElasticTest, LostNodesAndNewOnesChangeTheWorldAndSurvivorsKeepTheirRanks) {
  const auto host = start_host("1:3");
  const Place alone = next_place(*host);
  EXPECT_EQ(alone, (Place{0, 1, 0, 1, 0}));
  const auto second = start("1:3", {});
  EXPECT_EQ(next_place(*host), (Place{0, 2, 0, 2, 0}));
  EXPECT_EQ(next_place(*second), (Place{1, 2, 1, 2, 0}));
  const auto third = start("1:3", {});
  EXPECT_EQ(next_place(*host), (Place{0, 3, 0, 3, 0}));
  EXPECT_EQ(next_place(*second), (Place{1, 3, 1, 3, 0}));
  EXPECT_EQ(next_place(*third), (Place{2, 3, 2, 3, 0}));
  second->signal(SIGKILL);
  EXPECT_EQ(next_place(*host), (Place{0, 2, 0, 2, 0}));
  EXPECT_EQ(next_place(*third), (Place{1, 2, 1, 2, 0}));
  const auto fourth = start("1:3", {});
  EXPECT_EQ(next_place(*host), (Place{0, 3, 0, 3, 0}));
  EXPECT_EQ(next_place(*third), (Place{1, 3, 1, 3, 0}));
  const Place last = next_place(*fourth);
  EXPECT_EQ(last, (Place{2, 3, 2, 3, 0}));
  // Each round has a store of its own.
  EXPECT_NE(last.port, alone.port);
  EXPECT_NE(std::to_string(last.port), port_);
  finish_round(last);
  for (const auto* node : {&host, &third, &fourth}) {
    const CommandResult result = (*node)->finish();
    EXPECT_EQ(result.exit_code, 0) << result.describe();
  }
}

TEST_F(ElasticTest, ASurplusNodeIsASpareAndTakesTheLostOnesPlace) {
  const auto host = start_host("1:2");
  const auto member = start("1:2", {});
  EXPECT_EQ(next_place_among(*host, 2).nodes, 2);
  EXPECT_EQ(next_place(*member), (Place{1, 2, 1, 2, 0}));
  const auto spare = start("1:2", {});
  ASSERT_TRUE(spare->wait_for_output("spare"));
  member->signal(SIGKILL);
  EXPECT_EQ(next_place(*host), (Place{0, 2, 0, 2, 0}));
  const Place place = next_place(*spare);
  EXPECT_EQ(place, (Place{1, 2, 1, 2, 0}));
  finish_round(place);
  EXPECT_EQ(host->finish().exit_code, 0);
  EXPECT_EQ(spare->finish().exit_code, 0);
}

TEST_F(ElasticTest, ANodeThatIsStoppedLeavesAndTheOthersGoOnWithoutIt) {
  const auto host = start_host("1:2");
  const auto member = start("1:2", {});
  EXPECT_EQ(next_place_among(*host, 2).nodes, 2);
  EXPECT_EQ(next_place(*member).node, 1);
  member->signal(SIGTERM);
  const CommandResult left = member->finish();
  EXPECT_EQ(left.exit_code, 143) << left.describe();
  const Place alone = next_place(*host);
  EXPECT_EQ(alone, (Place{0, 1, 0, 1, 0}));
  finish_round(alone);
  const CommandResult result = host->finish();
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.out, HasSubstr("stopped by SIGTERM"));
}

// Its ranks end well, and the round that they were in is stopped for another one meanwhile.
TEST_F(ElasticTest, ADrainedNodeTakesNoPartInTheNextRound) {
  const auto program = [](const std::string& at_end) -> std::vector<std::string> {
    return {"sh", "-c", "trap '" + at_end + "exit 0' TERM; echo up $WORLD_SIZE; sleep 100 & wait"};
  };
  const std::string gate = job_.folder() + "/gate";
  ASSERT_EQ(::mkfifo(gate.c_str(), 0600), 0);
  const auto host = start_host("1:3", {}, program(""));
  const auto drained =
      start("1:3", {"--on-signal=TERM=drain:60s"}, program("cat " + gate + " >/dev/null; "));
  ASSERT_TRUE(host->wait_for_output("up 2"));
  ASSERT_TRUE(drained->wait_for_output("up 2"));
  drained->signal(SIGTERM);
  ASSERT_TRUE(drained->wait_for_output("have 60 s to end by themselves"));
  const auto newcomer = start("1:3", {}, program(""));
  ASSERT_TRUE(host->wait_for_output("round 0 is being stopped: 1 more nodes have come"));
  std::ofstream(gate).close();
  const CommandResult result = drained->finish();
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.out, Not(HasSubstr("up 3")));
  EXPECT_TRUE(newcomer->wait_for_output("up 2"));
  host->signal(SIGTERM);
  EXPECT_EQ(host->finish().exit_code, 143);
  EXPECT_EQ(newcomer->finish().exit_code, 143);
  ::unlink(gate.c_str());
}

// Its ranks would wait for those of the lost node for as long as they may.
TEST_F(ElasticTest, TheLossOfAnotherNodeEndsADrain) {
  const std::vector<std::string> program = {
      "sh", "-c",
      "trap 'trap \"\" TERM; echo asked' TERM; echo up $WORLD_SIZE; while :; do sleep 0.1; done"};
  // They begin when all are there: a round of fewer could not be stopped for a newcomer but by the
  // grace of 30 s.
  const std::string together = "--rdzv_conf=last_call_timeout=50";
  const auto host = start_host("1:3", {together}, program);
  const auto drained =
      start("1:3", {together, "--on-signal=TERM=drain:100s", "--shutdown-timeout=0.2"}, program);
  const auto lost = start("1:3", {together}, program);
  for (const auto* node : {&host, &drained, &lost}) ASSERT_TRUE((*node)->wait_for_output("up 3"));
  drained->signal(SIGTERM);
  ASSERT_TRUE(drained->wait_for_output("asked"));
  lost->signal(SIGKILL);
  const CommandResult result = drained->finish();
  EXPECT_EQ(result.exit_code, 128 + SIGTERM) << result.describe();
  EXPECT_LT(result.elapsed, seconds(60)) << result.describe();
  host->signal(SIGKILL);
  host->finish();
  lost->finish();
}

TEST_F(ElasticTest, StrangersAndThoseWhoComeWhenItEndsAreRefusedByName) {
  const auto host = start_host("1:3", {"--rdzv_id=a"},
                               {"sh", "-c", "[ $RANK = 1 ] && exit 0; echo up; exec sleep 100"});
  const auto member =
      start("1:3", {"--rdzv_id=a"}, {"sh", "-c", "[ $RANK = 1 ] || exec sleep 100"});
  CommandResult stranger = start("1:3", {"--rdzv_id=b"})->finish();
  EXPECT_EQ(stranger.exit_code, 64) << stranger.describe();
  EXPECT_THAT(stranger.out, HasSubstr("belongs to job 'b', and this is job 'a'"));
  ASSERT_TRUE(host->wait_for_output("is done"));
  CommandResult late = start("1:3", {"--rdzv_id=a"})->finish();
  EXPECT_EQ(late.exit_code, 64) << late.describe();
  EXPECT_THAT(late.out, HasSubstr("job 'a' is ending"));
  host->signal(SIGTERM);
  EXPECT_EQ(host->finish().exit_code, 143);
  EXPECT_EQ(member->finish().exit_code, 143);
}

// In which state of a round an agent is killed.
enum class ElasticMoment { kStarting, kRunning, kStopping };

class ElasticKillTest : public ElasticTest, public testing::WithParamInterface<ElasticMoment> {
 protected:
  // Ranks that do not end by SIGTERM before the fifo is opened, so that stopping lasts.
  std::vector<std::string> stubborn() const {
    return {"sh", "-c",
            "trap 'echo stopping; read x <" + job_.folder() +
                "/gate' TERM; "
                "echo rank $RANK of $WORLD_SIZE, restart $TORCHELASTIC_RESTART_COUNT; "
                "while :; do sleep 0.05; done"};
  }

  std::unique_ptr<Command> start_node() {
    return start("1:3", {"--shutdown_timeout=0.3"}, stubborn());
  }

  // Kills the agent once it is in the state.
  void kill(Command& agent, Command& other) {
    if (GetParam() != ElasticMoment::kStarting) {
      ASSERT_TRUE(agent.wait_for_output("of 2, restart 0"));
      ASSERT_TRUE(other.wait_for_output("of 2, restart 0"));
    }
    if (GetParam() == ElasticMoment::kStopping) {
      newcomer_ = start_node();
      ASSERT_TRUE(agent.wait_for_output("stopping"));
    }
    agent.signal(SIGKILL);
  }

  std::unique_ptr<Command> newcomer_;
};

TEST_P(ElasticKillTest, AMemberIsMissedAndTheOthersGoOn) {
  const auto host = start("1:3", {"--shutdown_timeout=0.3"}, stubborn());
  ASSERT_TRUE(host->wait_for_output("hosts the rendezvous"));
  const auto member = start_node();
  kill(*member, *host);
  const int left = newcomer_ ? 2 : 1;
  EXPECT_TRUE(host->wait_for_output("rank 0 of " + std::to_string(left)));
  if (newcomer_) {
    EXPECT_TRUE(newcomer_->wait_for_output("rank 1 of 2"));
  }
  host->signal(SIGTERM);
  host->signal(SIGTERM);
  EXPECT_EQ(host->finish().exit_code, 143);
}

TEST_P(ElasticKillTest, AllOthersReportAKilledHostWithinSeconds) {
  const auto host = start_host("1:3", {"--shutdown_timeout=0.3"}, stubborn());
  const auto member = start_node();
  ASSERT_TRUE(host->wait_for_output("has joined"));
  kill(*host, *member);
  const auto killed = std::chrono::steady_clock::now();
  const CommandResult result = member->finish();
  EXPECT_LT(std::chrono::steady_clock::now() - killed, testing_support::kPatience);
  EXPECT_NE(result.exit_code, 0);
  EXPECT_FALSE(result.killed_at_limit);
  EXPECT_THAT(result.out, HasSubstr("127.0.0.1:" + port_)) << result.describe();
}

INSTANTIATE_TEST_SUITE_P(States, ElasticKillTest,
                         testing::Values(ElasticMoment::kStarting, ElasticMoment::kRunning,
                                         ElasticMoment::kStopping),
                         [](const auto& moment) {
                           return moment.param == ElasticMoment::kStarting  ? "Starting"
                                  : moment.param == ElasticMoment::kRunning ? "Running"
                                                                            : "Stopping";
                         });

TEST_F(ElasticTest, ANodeWhoseGuardIsKilledDropsOut) {
  const auto host = start_host("1:2", {"--max-restarts=1"});
  const auto member = start("1:2", {"--max-restarts=1"});
  EXPECT_EQ(next_place(*member).nodes, 2);
  ::kill(wait_for_guard(member->pid()).guard, SIGKILL);
  const CommandResult result = member->finish();
  EXPECT_EQ(result.exit_code, 125) << result.describe();
  Place place;
  do place = next_place(*host);
  while (place.nodes == 2 || place.restart == 0);
  EXPECT_EQ(place, (Place{0, 1, 0, 1, 1}));
  finish_round(place);
  EXPECT_EQ(host->finish().exit_code, 0);
}

TEST_F(ElasticTest, WhenTheHostIsKilledAllEndWithAVerdictWithinSeconds) {
  const auto host = start_host("1:3");
  const auto one = start("1:3", {}), two = start("1:3", {});
  while (next_place(*host).nodes != 3) ASSERT_TRUE(host->wait_for_output("round"));
  host->signal(SIGKILL);
  const auto killed = std::chrono::steady_clock::now();
  for (const auto* node : {&one, &two}) {
    const CommandResult result = (*node)->finish();
    EXPECT_NE(result.exit_code, 0);
    EXPECT_FALSE(result.killed_at_limit);
    EXPECT_THAT(result.out, AllOf(HasSubstr("127.0.0.1:" + port_), HasSubstr("is gone")))
        << result.describe();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - killed, testing_support::kPatience);
}

TEST_F(ElasticTest, ANodeThatIsDoneDoesNotTakeAKilledHostForASuccess) {
  for (const char* nodes : {"2", "1:2"}) {
    const std::vector<std::string> program = {"sh", "-c", "[ $GROUP_RANK = 1 ] || exec sleep 100"};
    const auto host = start_host(nodes, {}, program);
    const auto member = start(nodes, {}, program);
    ASSERT_TRUE(host->wait_for_output(") is done"));
    host->signal(SIGKILL);
    const auto killed = std::chrono::steady_clock::now();
    const CommandResult result = member->finish();
    EXPECT_LT(std::chrono::steady_clock::now() - killed, seconds(10));
    EXPECT_EQ(result.exit_code, 1) << result.describe();
    EXPECT_THAT(result.out, AllOf(HasSubstr("127.0.0.1:" + port_ + ") is gone: nobody answers"),
                                  HasSubstr("how the job has ended it cannot know")))
        << result.describe();
  }
}

}  // namespace
}  // namespace dtrun::launcher
