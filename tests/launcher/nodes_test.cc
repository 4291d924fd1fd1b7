// Two nodes: two dtrun processes on this machine, node 0 listening on a port of the loopback.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <memory>

#include "dtrun/base/error.h"
#include "dtrun/base/socket.h"
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
using testing_support::Command;
using testing_support::CommandResult;
using testing_support::kPatience;
using testing_support::OwnPort;

class NodesTest : public testing::Test {
 protected:
  std::vector<std::string> node(int rank, std::vector<std::string> rest, int nodes = 2) const {
    std::vector<std::string> command = {DTRUN_BINARY, "--nnodes=" + std::to_string(nodes),
                                        "--node_rank=" + std::to_string(rank),
                                        "--master_addr=127.0.0.1", "--master_port=" + port_.text()};
    command.insert(command.end(), rest.begin(), rest.end());
    return command;
  }

  std::unique_ptr<Command> start(int rank, std::vector<std::string> rest, int nodes = 2) {
    return std::make_unique<Command>(node(rank, std::move(rest), nodes), job_.options());
  }

  base::UniqueFd connect_to_head() const {
    return base::connect_tcp("127.0.0.1", port_.number(), base::Deadline::after(seconds(10)));
  }

  OwnPort port_;
  LauncherJob job_;
};

TEST_F(NodesTest, WithoutAnAddressTheNodesMeetOnThisMachineAndAreToldSo) {
  const auto start_without = [&](const std::string& rank) {
    return std::make_unique<Command>(
        std::vector<std::string>{DTRUN_BINARY, "--nnodes=2", "--node_rank=" + rank,
                                 "--master_port=" + port_.text(), "sh", "-c", "echo $MASTER_ADDR"},
        job_.options());
  };
  const auto member = start_without("1"), head = start_without("0");
  for (const auto* node : {&member, &head}) {
    const CommandResult result = (*node)->finish();
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_THAT(result.out, HasSubstr("127.0.0.1\n"));
    EXPECT_THAT(result.err, HasSubstr("only dtruns on this machine can join"));
  }
}

TEST_F(NodesTest, ANodeThatComesBackIsSentAwayAndTheRanksKeepTheirGrace) {
  const std::vector<std::string> program = {
      "--shutdown_timeout=20", "sh", "-c",
      "trap 'echo saving; read x <gate; echo saved; exit 0' TERM; echo up; "
      "while :; do sleep 0.05; done"};
  job_.options().folder = job_.folder();
  ASSERT_EQ(::mkfifo((job_.folder() + "/gate").c_str(), 0600), 0);
  const auto head = start(0, program);
  auto member = start(1, {"sleep", "100"});
  ASSERT_TRUE(head->wait_for_output("up"));
  member->signal(SIGKILL);
  ASSERT_TRUE(head->wait_for_output("saving"));
  const CommandResult again = start(1, {"sleep", "100"})->finish();
  EXPECT_NE(again.exit_code, 0) << again.describe();
  EXPECT_THAT(again.err, HasSubstr("has failed already: node 1 ("));
  // Only now may the rank end; opening the fifo waits for it.
  const CommandResult gate =
      testing_support::run_command({"sh", "-c", "echo go >" + job_.folder() + "/gate"});
  EXPECT_EQ(gate.exit_code, 0);
  const CommandResult result = head->finish();
  EXPECT_NE(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.out, HasSubstr("saved"));
}

TEST_F(NodesTest, UnequalNodesFormOneWorldWhicheverStartsFirst) {
  const char* const script =
      "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE "
      "$MASTER_ADDR $MASTER_PORT $TORCHELASTIC_RUN_ID";
  const std::string end = " 127.0.0.1 " + port_.text() + " none";
  for (const int first : {0, 1}) {
    std::unique_ptr<Command> nodes[2];
    for (const int rank : {first, 1 - first})
      nodes[rank] =
          start(rank, {"--nproc_per_node=" + std::to_string(1 + rank), "sh", "-c", script});
    const CommandResult zero = nodes[0]->finish(), one = nodes[1]->finish();
    EXPECT_EQ(zero.exit_code, 0) << zero.describe();
    EXPECT_EQ(one.exit_code, 0) << one.describe();
    EXPECT_EQ(zero.out, "0 0 3 1 0 2" + end + "\n");
    EXPECT_EQ(one.sorted_lines(),
              (std::vector<std::string>{"1 0 3 2 1 2" + end, "2 1 3 2 1 2" + end}));
  }
  EXPECT_THAT(job_.left_behind(), IsEmpty());
}

TEST_F(NodesTest, ThreeNodesCountTheirRanksInNodeOrder) {
  std::unique_ptr<Command> nodes[3];
  for (const int rank : {2, 0, 1})
    nodes[rank] = start(rank, {"--nproc_per_node=1", "sh", "-c", "echo $RANK of $WORLD_SIZE"}, 3);
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(nodes[rank]->finish().out, std::to_string(rank) + " of 3\n");
}

TEST_F(NodesTest, ARankThatFailsOnOneNodeStopsTheOtherWithItsCodeAndName) {
  for (const int failing : {0, 1}) {
    port_ = OwnPort();
    std::unique_ptr<Command> nodes[2];
    for (const int rank : {0, 1})
      nodes[rank] = start(rank, {"--nproc_per_node=2", "sh", "-c",
                                 "echo up; [ $GROUP_RANK = " + std::to_string(failing) +
                                     " ] && [ $LOCAL_RANK = 1 ] && kill -9 $$; exec sleep 100"});
    const CommandResult own = nodes[failing]->finish(), other = nodes[1 - failing]->finish();
    EXPECT_EQ(own.exit_code, 137) << own.describe();
    EXPECT_EQ(other.exit_code, 137) << other.describe();
    EXPECT_LT(own.elapsed, kPatience);
    EXPECT_LT(other.elapsed, kPatience);
    const std::string rank = std::to_string(failing * 2 + 1);
    EXPECT_THAT(own.err, HasSubstr("rank      : " + rank + " (local_rank: 1)"));
    EXPECT_THAT(other.err, AllOf(HasSubstr("rank " + rank + " on node " + std::to_string(failing)),
                                 HasSubstr("SIGKILL")));
  }
}

TEST_F(NodesTest, TheHeadsTableIsOfAllNodesAndTheOthersHearTheFirstCausesLastWords) {
  std::unique_ptr<Command> nodes[3];
  for (const int rank : {0, 1, 2})
    nodes[rank] = start(rank,
                        {"--nproc_per_node=2", "sh", "-c",
                         "echo up; [ $RANK = 3 ] || exec sleep 100; read x <&-; "
                         "echo 'the reason' >&2; exit 7"},
                        3);
  const CommandResult head = nodes[0]->finish(), own = nodes[1]->finish(),
                      other = nodes[2]->finish();
  for (const CommandResult* node : {&head, &own, &other}) EXPECT_EQ(node->exit_code, 7);
  for (int rank = 0; rank < 6; ++rank)
    EXPECT_THAT(head.err, HasSubstr("rank      : " + std::to_string(rank) +
                                    " (local_rank: " + std::to_string(rank % 2) + ")"))
        << head.describe();
  const std::string root = head.err.substr(head.err.find("Root Cause"));
  EXPECT_THAT(root, AllOf(HasSubstr("rank      : 3 (local_rank: 1)"), HasSubstr("exitcode  : 7"),
                          HasSubstr("rank 3 wrote to its standard error:\n  | the reason")));
  EXPECT_THAT(own.err, HasSubstr("rank      : 3 (local_rank: 1)"));
  EXPECT_THAT(other.err, AllOf(HasSubstr("rank 3 on node 1"), HasSubstr("  | the reason"),
                               testing::Not(HasSubstr("Root Cause"))));
}

TEST_F(NodesTest, ANodeThatDiesStopsTheOtherWithinASecondAndIsNamed) {
  for (const int dying : {0, 1}) {
    testing_support::expect_promptness(seconds(1), [&] {
      port_ = OwnPort();
      const std::string token = unique_token();
      std::unique_ptr<Command> nodes[2];
      for (const int rank : {0, 1})
        nodes[rank] = start(rank, {"sh", "-c", "echo up; exec sleep " + token});
      EXPECT_TRUE(nodes[0]->wait_for_output("up") && nodes[1]->wait_for_output("up"));
      const auto death = std::chrono::steady_clock::now();
      nodes[dying]->signal(SIGKILL);
      EXPECT_TRUE(all_gone_within("sleep " + token, kPatience));
      const auto took = std::chrono::steady_clock::now() - death;
      const CommandResult other = nodes[1 - dying]->finish();
      EXPECT_NE(other.exit_code, 0);
      EXPECT_THAT(other.err,
                  AllOf(HasSubstr("node " + std::to_string(dying)), HasSubstr("is gone")))
          << other.describe();
      return took;
    });
  }
}

TEST_F(NodesTest, StoppingOneNodeStopsTheOther) {
  std::unique_ptr<Command> nodes[2];
  for (const int rank : {0, 1}) nodes[rank] = start(rank, {"sh", "-c", "echo up; exec sleep 100"});
  ASSERT_TRUE(nodes[0]->wait_for_output("up") && nodes[1]->wait_for_output("up"));
  nodes[1]->signal(SIGINT);
  EXPECT_EQ(nodes[1]->finish().exit_code, 130);
  const CommandResult zero = nodes[0]->finish();
  EXPECT_EQ(zero.exit_code, 130) << zero.describe();
  EXPECT_THAT(zero.err, HasSubstr("dtrun on node 1"));
  EXPECT_THAT(zero.err, HasSubstr("was stopped by SIGINT"));
}

TEST_F(NodesTest, AReaderThatGoesAwayOnOneNodeEndsTheJobOnAll) {
  std::vector<std::string> piped = {"sh", "-c", "{ \"$@\"; echo code $? >&2; } | head -n 1", "sh"};
  for (const std::string& argument : node(0, {"yes"})) piped.push_back(argument);
  Command head(piped, job_.options());
  const CommandResult member = start(1, {"sleep", "100"})->finish();
  EXPECT_EQ(member.exit_code, 141) << member.describe();
  EXPECT_THAT(member.err, HasSubstr("nobody reads the standard output of dtrun on node 0 ("));
  EXPECT_THAT(head.finish().err, HasSubstr("code 141\n"));
}

TEST_F(NodesTest, WhoIsMissingIsToldNowAndThen) {
  const auto start_in_one_stream = [this](int rank) {
    std::vector<std::string> command = {"sh", "-c", "exec \"$@\" 2>&1", "sh"};
    for (const std::string& argument : node(rank, {"true"}, 3)) command.push_back(argument);
    return std::make_unique<Command>(command, job_.options());
  };
  const auto member = start_in_one_stream(1);
  const auto of_member = member->next_line("dtrun: waiting for");
  ASSERT_TRUE(of_member);
  EXPECT_EQ(*of_member,
            "dtrun: waiting for node 0 (127.0.0.1:" + port_.text() + "): Connection refused");
  const auto head = start_in_one_stream(0);
  for (int times = 0; times < 2; ++times) {
    const auto line = head->next_line("dtrun: waiting for");
    ASSERT_TRUE(line);
    EXPECT_THAT(*line, AllOf(HasSubstr("other nodes: 2 of 3 nodes are here ("),
                             HasSubstr("; missing: node 2; 59")));
  }
  const auto again = member->next_line("dtrun: waiting for");
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, "dtrun: waiting for other nodes: dtrun on node 0 (127.0.0.1:" + port_.text() +
                        ") says who is missing");
  EXPECT_EQ(start(2, {"true"}, 3)->finish().exit_code, 0);
  EXPECT_EQ(head->finish().exit_code, 0);
  EXPECT_EQ(member->finish().exit_code, 0);
}

TEST_F(NodesTest, TheStoreOutlivesTheLastRankOfTheJob) {
  // Node 1 still talks to node 0's port half a second after node 0's own rank has ended.
  const auto zero = start(0, {"true"});
  const auto one =
      start(1, {"sh", "-c",
                "sleep 0.5; python3 -c 'import socket, sys; "
                "socket.create_connection((sys.argv[1], int(sys.argv[2]))); print(\"there\")' "
                "$MASTER_ADDR $MASTER_PORT"});
  const CommandResult result = one->finish();
  EXPECT_EQ(result.out, "there\n") << result.describe();
  EXPECT_EQ(zero->finish().exit_code, 0);
}

TEST_F(NodesTest, AJoinThatTakesTooLongNamesWhoIsMissing) {
  // Node 1 calls until there is a node 0.
  const auto one = start(1, {"--join_timeout=50", "true"}, 3);
  const auto zero = start(0, {"--join_timeout=3", "true"}, 3);
  const CommandResult result = zero->finish();
  EXPECT_EQ(result.exit_code, 75) << result.describe();
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("2 of 3 nodes have joined in 3"), HasSubstr("s; missing: node 2")));
  EXPECT_EQ(one->finish().exit_code, 75);
  EXPECT_THAT(job_.left_behind(), IsEmpty());
}

TEST_F(NodesTest, AMemberWithoutANodeZeroGivesUpAtItsTimeout) {
  const CommandResult result =
      testing_support::run_command(node(1, {"--join_timeout=0.3", "true"}), job_.options());
  EXPECT_EQ(result.exit_code, 69) << result.describe();
  EXPECT_THAT(result.err, HasSubstr(port_.text()));
  EXPECT_THAT(job_.left_behind(), IsEmpty());
}

TEST_F(NodesTest, NodesThatDisagreeAreSentAwayWithTheReason) {
  std::vector<std::string> watched = {"sh", "-c", "exec \"$@\" 2>&1", "sh"};
  for (std::string& word : node(0, {"-v", "--rdzv_id=a", "--join_timeout=20", "echo", "ran"}, 3))
    watched.push_back(std::move(word));
  const auto zero = std::make_unique<Command>(watched, job_.options());
  const auto refused = [&](int rank, std::vector<std::string> rest, int nodes) {
    const CommandResult result =
        testing_support::run_command(node(rank, std::move(rest), nodes), job_.options());
    EXPECT_EQ(result.exit_code, 64) << result.describe();
    return result.err;
  };
  EXPECT_THAT(refused(1, {"--rdzv_id=b", "true"}, 3), HasSubstr("job 'b', and this is job 'a'"));
  EXPECT_THAT(refused(1, {"--rdzv_id=a", "true"}, 2), HasSubstr("--nnodes=2"));
  EXPECT_THAT(refused(3, {"--rdzv_id=a", "true"}, 4), HasSubstr("--nnodes=4"));

  const auto one = start(1, {"--rdzv_id=a", "true"}, 3);
  ASSERT_TRUE(zero->wait_for_output("node 1 (" + base::host_name() + ") has joined"));
  EXPECT_THAT(refused(1, {"--rdzv_id=a", "true"}, 3), HasSubstr("--node_rank=1 is taken already"));
  zero->signal(SIGTERM);
  EXPECT_EQ(zero->finish().exit_code, 143);
}

TEST_F(NodesTest, StrangersAtThePortDoNoHarm) {
  const auto zero = start(0, {"echo", "ran"}, 3);
  const auto speak = [&](const std::string& bytes) {
    const base::UniqueFd socket = connect_to_head();
    base::send_all(socket.get(), bytes.data(), bytes.size(), base::Deadline::after(seconds(10)));
    ::shutdown(socket.get(), SHUT_WR);
    char rest[256];
    while (::recv(socket.get(), rest, sizeof rest, 0) > 0) {
    }
  };
  // No agents of this version, or none at all: garbage, too short, too long, silent.
  for (const std::string& bytes :
       {std::string("\xff\xff\xff\xff"), std::string("\xd7\x63"), std::string("\xd7"),
        std::string("\xd7\x02\xff\xff\xff\xff"), std::string(100000, '\xd7'), std::string()})
    speak(bytes);
  const auto one = start(1, {"echo", "ran"}, 3), two = start(2, {"echo", "ran"}, 3);
  for (const auto* node_command : {&zero, &one, &two})
    EXPECT_EQ((*node_command)->finish().out, "ran\n");
}

}  // namespace
}  // namespace dtrun::launcher
