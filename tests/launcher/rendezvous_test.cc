// The c10d rendezvous: several dtrun on this machine, all started with the same line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>

#include <filesystem>
#include <memory>

#include "dtrun/base/socket.h"
#include "launcher/launcher_job.h"
#include "launcher/living_processes.h"
#include "support/own_port.h"
#include "support/promptness.h"

namespace dtrun::launcher {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::Command;
using testing_support::CommandResult;

class RendezvousTest : public testing::Test {
 protected:
  // The same line for every node, with what differs for this one.
  std::vector<std::string> line(int nodes, std::vector<std::string> rest) const {
    std::vector<std::string> command = {DTRUN_BINARY, "--nnodes=" + std::to_string(nodes),
                                        "--rdzv_backend=c10d",
                                        "--rdzv_endpoint=127.0.0.1:" + port_};
    command.insert(command.end(), rest.begin(), rest.end());
    return command;
  }

  std::unique_ptr<Command> start(int nodes, std::vector<std::string> rest) {
    return std::make_unique<Command>(line(nodes, std::move(rest)), job_.options());
  }

  // Its standard error comes with its output, so that a test can wait for what -v says.
  std::unique_ptr<Command> start_watched(int nodes, std::vector<std::string> rest) {
    std::vector<std::string> command = {"sh", "-c", "exec \"$@\" 2>&1", "sh"};
    for (std::string& word : line(nodes, std::move(rest))) command.push_back(std::move(word));
    return std::make_unique<Command>(command, job_.options());
  }

  // Node 0, once it listens.
  std::unique_ptr<Command> start_host(int nodes, std::vector<std::string> rest) {
    rest.insert(rest.begin(), "-v");
    auto host = start_watched(nodes, std::move(rest));
    EXPECT_TRUE(host->wait_for_output("hosts the rendezvous"));
    return host;
  }

  testing_support::OwnPort own_port_;
  std::string port_ = own_port_.text();
  LauncherJob job_;
};

TEST_F(RendezvousTest, TheSameLineOnEveryNodeFormsOneWorld) {
  std::unique_ptr<Command> nodes[3];
  for (int i = 0; i < 3; ++i)
    nodes[i] = start(3, {"--nproc_per_node=" + std::to_string(1 + i), "--rdzv_id=j1", "sh", "-c",
                         "echo $RANK $WORLD_SIZE $GROUP_WORLD_SIZE $MASTER_ADDR $MASTER_PORT "
                         "$TORCHELASTIC_RUN_ID; echo group $GROUP_RANK"});
  std::vector<std::string> lines;
  for (auto& node : nodes) {
    const CommandResult result = node->finish();
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    for (const std::string& line : result.sorted_lines()) lines.push_back(line);
  }
  std::sort(lines.begin(), lines.end());
  lines.erase(std::unique(lines.begin(), lines.end()), lines.end());
  const std::string end = " 6 3 127.0.0.1 " + port_ + " j1";
  EXPECT_THAT(lines, ElementsAre("0" + end, "1" + end, "2" + end, "3" + end, "4" + end, "5" + end,
                                 "group 0", "group 1", "group 2"));
  EXPECT_THAT(job_.left_behind(), IsEmpty());
}

TEST_F(RendezvousTest, NumbersThatAllNodesGiveAreHonoured) {
  std::unique_ptr<Command> nodes[2];
  for (const int rank : {1, 0})
    nodes[rank] = start(2, {"--node_rank=" + std::to_string(rank), "--tag=always", "sh", "-c",
                            "echo $RANK $GROUP_RANK"});
  EXPECT_EQ(nodes[0]->finish().out, "[0:0] 0 0\n");
  EXPECT_EQ(nodes[1]->finish().out, "[1:1] 1 1\n");
}

TEST_F(RendezvousTest, OneNodeNeedsNoEndpointAndMayLeaveThePortToTheKernel) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--rdzv_backend=c10d"},
        {"--rdzv_backend=c10d", "--standalone"},
        {"--rdzv_backend=c10d", "--rdzv_endpoint=localhost:0", "--nnodes=1"}}) {
    std::vector<std::string> command = words;
    for (const char* word : {"--nproc_per_node=2", "sh", "-c", "echo $RANK $WORLD_SIZE"})
      command.emplace_back(word);
    EXPECT_THAT(job_.run(command).sorted_lines(), ElementsAre("0 2", "1 2"));
  }
  const base::UniqueFd holder = base::listen_tcp("127.0.0.1", own_port_.number());
  const CommandResult taken =
      job_.run({"--rdzv_backend=c10d", "--rdzv_endpoint=127.0.0.1:" + port_, "true"});
  EXPECT_EQ(taken.exit_code, 71);
  EXPECT_THAT(taken.err, AllOf(HasSubstr(port_), HasSubstr("EADDRINUSE")));
}

TEST_F(RendezvousTest, OneLineSaysWhoHostsAndWhy) {
  const auto host = start_host(2, {"true"});
  const CommandResult member = start(2, {"-v", "true"})->finish();
  const CommandResult result = host->finish();
  EXPECT_THAT(result.out, AllOf(HasSubstr("hosts the rendezvous at 127.0.0.1:" + port_),
                                HasSubstr("is every machine itself, so only agents of this one"),
                                Not(HasSubstr("address of this machine")), HasSubstr("node 0 (")));
  EXPECT_THAT(member.err, AllOf(HasSubstr("joins the rendezvous at 127.0.0.1:" + port_),
                                HasSubstr("held by another process here"), HasSubstr("node 1 (")));
}

TEST_F(RendezvousTest, AgentsFindEachOtherThroughAFileThatAKilledJobHasLeft) {
  const std::string path = job_.folder() + "/head";
  const auto node = [&](std::vector<std::string> rest) {
    std::vector<std::string> command = {"sh",
                                        "-c",
                                        "exec \"$@\" 2>&1",
                                        "sh",
                                        DTRUN_BINARY,
                                        "--nnodes=2",
                                        "--rdzv_backend=c10d",
                                        "--rdzv_conf=store_type=file",
                                        "--rdzv_endpoint=" + path};
    command.insert(command.end(), rest.begin(), rest.end());
    return std::make_unique<Command>(command, job_.options());
  };
  const auto killed = node({"--rdzv_id=old", "true"});
  ASSERT_TRUE(killed->wait_for_output("it came first to " + path));
  killed->signal(SIGKILL);
  killed->finish();
  EXPECT_TRUE(std::filesystem::exists(path));
  const auto host = node({"--rdzv_id=a", "sh", "-c", "echo up $RANK; exec sleep 100"});
  ASSERT_TRUE(host->wait_for_output("it came first to " + path));
  const CommandResult stranger = node({"--rdzv_id=b", "true"})->finish();
  EXPECT_EQ(stranger.exit_code, 64) << stranger.describe();
  EXPECT_THAT(stranger.out, HasSubstr("in use by another job, 'a'"));
  const auto member = node({"--rdzv_id=a", "sh", "-c", "echo up $RANK; exec sleep 100"});
  EXPECT_TRUE(host->wait_for_output("up 0") && member->wait_for_output("up 1"));
  host->signal(SIGTERM);
  EXPECT_EQ(host->finish().exit_code, 143);
  member->finish();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(RendezvousTest, ARankThatFailsOnOneNodeStopsAllWithItsCodeAndName) {
  std::unique_ptr<Command> nodes[2];
  for (auto& node : nodes)
    node = start(2, {"--nproc_per_node=2", "sh", "-c", "[ $RANK = 3 ] && exit 85; exec sleep 100"});
  const CommandResult results[] = {nodes[0]->finish(), nodes[1]->finish()};
  for (const CommandResult& result : results) EXPECT_EQ(result.exit_code, 85) << result.describe();
  const std::string both = results[0].err + results[1].err;
  EXPECT_THAT(both,
              AllOf(HasSubstr("rank      : 3 (local_rank: 1)"), HasSubstr("rank 3 on node 1 (")));
}

TEST_F(RendezvousTest, StrangersAndLateComersAreSentAwayByNameAndTheJobGoesOn) {
  const auto host = start_host(2, {"--rdzv_id=a", "sh", "-c", "echo up; exec sleep 100"});
  CommandResult stranger = start(2, {"--rdzv_id=b", "true"})->finish();
  EXPECT_EQ(stranger.exit_code, 64) << stranger.describe();
  EXPECT_THAT(stranger.err, HasSubstr("belongs to job 'b', and this is job 'a'"));
  const auto member = start(2, {"--rdzv_id=a", "sh", "-c", "echo up; exec sleep 100"});
  ASSERT_TRUE(host->wait_for_output("up") && member->wait_for_output("up"));
  const CommandResult surplus = start(2, {"--rdzv_id=a", "true"})->finish();
  EXPECT_EQ(surplus.exit_code, 64) << surplus.describe();
  EXPECT_THAT(surplus.err, AllOf(HasSubstr("job 'a' is full"), HasSubstr("2 nodes")));
  member->signal(SIGTERM);
  EXPECT_EQ(member->finish().exit_code, 143);
  EXPECT_EQ(host->finish().exit_code, 143);
}

TEST_F(RendezvousTest, ContradictionsEndTheJobOnAllNodes) {
  struct Case {
    std::vector<std::string> wrong;
    const char* text;
  };
  for (const Case& one : {Case{{"--nnodes=4"}, "--nnodes=4, node 0 with --nnodes=3"},
                          Case{{"--node_rank=1"}, "with --node_rank=1, node 0 without"}}) {
    const auto host = start_host(3, {"true"});
    const auto member = start(3, {"true"});
    std::vector<std::string> wrong = one.wrong;
    wrong.push_back("true");
    const auto culprit = start(3, wrong);
    for (const auto* node : {&host, &member, &culprit}) {
      const CommandResult result = (*node)->finish();
      EXPECT_EQ(result.exit_code, 64) << result.describe();
      EXPECT_THAT(result.err + result.out, HasSubstr(one.text)) << result.describe();
      EXPECT_LT(result.elapsed.count(), 20.0);
    }
  }
  EXPECT_THAT(job_.left_behind(), IsEmpty());
}

TEST_F(RendezvousTest, ANodeThatDoesNotComeIsMissedOnAllNodes) {
  const auto host = start_host(3, {"--rdzv_conf=join_timeout=4", "true"});
  const auto member = start(3, {"--rdzv_conf=join_timeout=50", "true"});
  for (const auto* node : {&host, &member}) {
    const CommandResult result = (*node)->finish();
    EXPECT_EQ(result.exit_code, 75) << result.describe();
    EXPECT_THAT(result.err + result.out, AllOf(HasSubstr("2 of 3 nodes have joined in 4"),
                                               HasSubstr("127.0.0.1 is every machine itself")));
  }
}

TEST_F(RendezvousTest, AMemberGivesUpAtItsOwnTimeoutAndTheOthersGoOnWaiting) {
  const auto host = start_host(3, {"true"});
  const CommandResult member = start(3, {"--join_timeout=0.3", "true"})->finish();
  EXPECT_EQ(member.exit_code, 75) << member.describe();
  EXPECT_THAT(member.err, HasSubstr("has not started the job for 300 ms"));
  ASSERT_TRUE(host->wait_for_output("has left before the start"));
  host->signal(SIGTERM);
  EXPECT_EQ(host->finish().exit_code, 143);
}

TEST_F(RendezvousTest, WhereNobodyHostsTheEndpointAndTheLastErrorAreNamed) {
  const CommandResult result =
      start(2, {"--rdzv_conf=is_host=no,join_timeout=0.5", "true"})->finish();
  EXPECT_EQ(result.exit_code, 69) << result.describe();
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("no dtrun hosts the rendezvous"), HasSubstr("127.0.0.1:" + port_),
                    HasSubstr("Connection refused"), HasSubstr("is_host=false")));
}

TEST_F(RendezvousTest, APortThatSomethingElseHoldsIsFoundOutInSeconds) {
  // Accepts, by its backlog, and says nothing.
  const base::UniqueFd holder = base::listen_tcp("127.0.0.1", own_port_.number());
  const CommandResult silent = start(2, {"--rdzv_conf=read_timeout=0.3", "true"})->finish();
  EXPECT_EQ(silent.exit_code, 69) << silent.describe();
  EXPECT_THAT(silent.err, AllOf(HasSubstr("127.0.0.1:" + port_), HasSubstr("is no dtrun"),
                                HasSubstr("did not answer in 300 ms"), HasSubstr("ss -ltnp")));
  // The connection of before is the first in the backlog.
  base::UniqueFd(::accept4(holder.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const auto node = start(2, {"true"});
  const base::UniqueFd peer(::accept4(holder.get(), nullptr, nullptr, SOCK_CLOEXEC));
  base::send_all(peer.get(), "HTTP/1.1 400 Bad Request\r\n", 26, base::Deadline::after(seconds(5)));
  const CommandResult talking = node->finish();
  EXPECT_EQ(talking.exit_code, 69) << talking.describe();
  EXPECT_THAT(talking.err, HasSubstr("is no dtrun"));
  const CommandResult forced = start(2, {"--rdzv_conf=is_host=true", "true"})->finish();
  EXPECT_EQ(forced.exit_code, 71) << forced.describe();
  EXPECT_THAT(forced.err, HasSubstr("EADDRINUSE"));
}

TEST_F(RendezvousTest, AHostThatIsKilledWhileOthersWaitIsNamedAtOnce) {
  const auto host = start_host(3, {"true"});
  const auto member = start(3, {"true"});
  ASSERT_TRUE(host->wait_for_output("has joined"));
  const auto killed = std::chrono::steady_clock::now();
  host->signal(SIGKILL);
  const CommandResult result = member->finish();
  EXPECT_LT(std::chrono::steady_clock::now() - killed, testing_support::kPatience);
  EXPECT_EQ(result.exit_code, 69) << result.describe();
  EXPECT_THAT(result.err, AllOf(HasSubstr("node 0 at 127.0.0.1:" + port_),
                                HasSubstr("has gone before the job began")));
  EXPECT_THAT(job_.left_behind(), IsEmpty());
}

TEST_F(RendezvousTest, AMemberThatIsKilledWhileItWaitsLeavesItsPlaceToAnother) {
  const auto host = start_host(3, {"sh", "-c", "echo $WORLD_SIZE"});
  const auto killed = start(3, {"true"});
  ASSERT_TRUE(host->wait_for_output("has joined"));
  killed->signal(SIGKILL);
  ASSERT_TRUE(host->wait_for_output("has left before the start"));
  const auto second = start(3, {"true"}), third = start(3, {"true"});
  const CommandResult result = host->finish();
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.out, HasSubstr("\n3\n"));
  EXPECT_EQ(second->finish().exit_code, 0);
  EXPECT_EQ(third->finish().exit_code, 0);
}

TEST_F(RendezvousTest, WhoIsStoppedWhileItJoinsEndsAtOnceAndTheOthersAreTold) {
  for (const bool host_is_stopped : {true, false}) {
    const auto host = start_host(3, {"true"});
    const auto member = start(3, {"true"});
    ASSERT_TRUE(host->wait_for_output("has joined"));
    (host_is_stopped ? host : member)->signal(SIGTERM);
    const auto stopped = std::chrono::steady_clock::now();
    const CommandResult of_host = host->finish(), of_member = member->finish();
    EXPECT_LT(std::chrono::steady_clock::now() - stopped, testing_support::kPatience);
    for (const CommandResult& result : {of_host, of_member}) {
      EXPECT_EQ(result.exit_code, 143) << result.describe();
      EXPECT_THAT(result.out + result.err, HasSubstr("stopped by SIGTERM"));
    }
  }
  // One that does not reach anybody yet.
  const auto alone = start_watched(2, {"-v", "--rdzv_conf=is_host=false", "true"});
  ASSERT_TRUE(alone->wait_for_output("joins the rendezvous"));
  alone->signal(SIGTERM);
  const CommandResult result = alone->finish();
  EXPECT_LT(result.elapsed, testing_support::kPatience) << result.describe();
  // By the signal itself where that came before it was taken over.
  EXPECT_TRUE(result.exit_code == 143 || result.signal == SIGTERM) << result.describe();
  EXPECT_THAT(job_.left_behind(), IsEmpty());
}

}  // namespace
}  // namespace dtrun::launcher
