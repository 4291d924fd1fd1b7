// Jobs whose head is elected by a real etcd: several dtrun on this machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>

#include "dtrun/rendezvous/verdict_record.h"
#include "launcher/elastic_node.h"
#include "launcher/launcher_job.h"
#include "rendezvous/own_etcd_client.h"
#include "support/etcd_lab.h"

namespace dtrun::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing_support::Command;
using testing_support::CommandResult;
using testing_support::EtcdLab;

constexpr char kShortLease[] = "keep_alive_interval=1,keep_alive_max_attempt=2";

class EtcdJobTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { lab_ = std::make_unique<EtcdLab>(1); }
  static void TearDownTestSuite() { lab_.reset(); }
  void SetUp() override { REQUIRE_ETCD(*lab_); }

  std::vector<std::string> line(const std::string& nodes, const std::string& id,
                                std::vector<std::string> rest = {},
                                const std::string& times = kShortLease) {
    std::vector<std::string> command = {"sh",
                                        "-c",
                                        "exec \"$@\" 2>&1",
                                        "sh",
                                        DTRUN_BINARY,
                                        "-v",
                                        "--nnodes=" + nodes,
                                        "--rdzv_id=" + id,
                                        "--rdzv_backend=etcd-v2",
                                        "--rdzv_endpoint=" + lab_->endpoints()[0].to_string(),
                                        "--rdzv_conf=last_call_timeout=0.2," + times};
    if (rest.empty()) rest = {kWorker};
    command.insert(command.end(), rest.begin(), rest.end());
    return command;
  }
  std::unique_ptr<Command> start(const std::string& nodes, const std::string& id,
                                 std::vector<std::string> rest = {},
                                 const std::string& times = kShortLease) {
    return std::make_unique<Command>(line(nodes, id, std::move(rest), times), job_.options());
  }

  static std::unique_ptr<EtcdLab> lab_;
  LauncherJob job_;
};

std::unique_ptr<EtcdLab> EtcdJobTest::lab_;

TEST_F(EtcdJobTest, WhenTheHeadIsKilledAnotherIsElectedAndTheJobGoesOn) {
  const auto head = start("1:2", "moves");
  ASSERT_TRUE(head->wait_for_output("hosts the rendezvous"));
  const auto other = start("1:2", "moves");
  ASSERT_TRUE(other->wait_for_output("joins the rendezvous"));
  EXPECT_EQ(next_place(*other), (Place{1, 2, 1, 2, 0}));
  head->signal(SIGKILL);
  const Place alone = next_place(*other);
  EXPECT_EQ(alone, (Place{0, 1, 0, 1, 0}));
  ASSERT_TRUE(other->wait_for_output("hosts the rendezvous"));
  const auto third = start("1:2", "moves");
  EXPECT_EQ(next_place(*other), (Place{0, 2, 0, 2, 0}));
  const Place last = next_place(*third);
  EXPECT_EQ(last, (Place{1, 2, 1, 2, 0}));
  finish_round(last);
  for (const auto* node : {&other, &third}) {
    const CommandResult result = (*node)->finish();
    EXPECT_EQ(result.exit_code, 0) << result.describe();
  }
  const CommandResult late = start("1:2", "moves")->finish();
  EXPECT_EQ(late.exit_code, 64) << late.describe();
  EXPECT_THAT(late.out, AllOf(HasSubstr("job 'moves' is over"), HasSubstr("ended well")));
}

TEST_F(EtcdJobTest, AHeadThatIsStoppedLeavesTheJobToTheOthers) {
  const auto head = start("1:2", "left");
  ASSERT_TRUE(head->wait_for_output("hosts the rendezvous"));
  const auto other = start("1:2", "left");
  EXPECT_EQ(next_place(*other).nodes, 2);
  head->signal(SIGTERM);
  EXPECT_EQ(head->finish().exit_code, 143);
  Place place;
  do place = next_place(*other);
  while (place.nodes == 2);
  EXPECT_EQ(place, (Place{0, 1, 0, 1, 0}));
  finish_round(place);
  const CommandResult result = other->finish();
  EXPECT_EQ(result.exit_code, 0) << result.describe();
}

TEST_F(EtcdJobTest, NodesOfFixedNumberMeetAndAFailureRestartsThem) {
  std::unique_ptr<Command> nodes[2];
  for (auto& node : nodes)
    node = start("2", "fixed",
                 {"--max-restarts=1", "sh", "-c",
                  "echo rank $RANK restart $TORCHELASTIC_RESTART_COUNT; "
                  "[ $RANK$TORCHELASTIC_RESTART_COUNT = 10 ] && exit 7; "
                  "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exec sleep 100"});
  for (auto& node : nodes) {
    const CommandResult result = node->finish();
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_THAT(result.out, HasSubstr("restart 1"));
  }
}

// etcd holds what it does when the head dies between the writing of its verdict and the telling.
TEST_F(EtcdJobTest, AHeadThatDiesBeforeItHasToldItsVerdictLeavesItToAll) {
  const auto head = start("1:2", "judged");
  ASSERT_TRUE(head->wait_for_output("hosts the rendezvous"));
  const auto other = start("1:2", "judged");
  EXPECT_EQ(next_place(*other).nodes, 2);
  EXPECT_EQ(next_place_among(*head, 2).nodes, 2);
  rendezvous::rounds::Close verdict;
  verdict.outcome = rendezvous::rounds::Close::Outcome::kFailed;
  verdict.failure.rank = 0;
  verdict.failure.node_rank = 0;
  verdict.failure.host = "h";
  verdict.failure.code = 7;
  head->signal(SIGSTOP);
  rendezvous::OwnEtcdClient(lab_->endpoints())
      ->put("/torch/elastic/rendezvous/judged/closed", rendezvous::write_verdict(verdict), 0,
            base::Deadline::after(std::chrono::seconds(60)));
  head->signal(SIGKILL);
  const CommandResult result = other->finish();
  EXPECT_EQ(result.exit_code, 7) << result.describe();
  EXPECT_THAT(result.out, Not(HasSubstr("hosts the rendezvous")));
  const CommandResult late = start("1:2", "judged")->finish();
  EXPECT_EQ(late.exit_code, 64) << late.describe();
  EXPECT_THAT(late.out, HasSubstr("rank 0 on node 0 (h) failed: exit code 7"));
}

TEST_F(EtcdJobTest, AJobGoesOnAndEndsWellWhenEtcdIsKilled) {
  const std::string conf = "keep_alive_interval=10,close_timeout=1";
  const auto head = start("2", "outlives", {}, conf);
  ASSERT_TRUE(head->wait_for_output("hosts the rendezvous"));
  const auto other = start("2", "outlives", {}, conf);
  const Place place = next_place(*head);
  EXPECT_EQ(next_place(*other), (Place{1, 2, 1, 2, 0}));
  lab_->signal("kill", 1);
  finish_round(place);
  for (const auto* node : {&head, &other}) {
    const CommandResult result = (*node)->finish();
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_LT(result.elapsed, std::chrono::seconds(20));
    if (node == &head) {
      EXPECT_THAT(result.out,
                  AllOf(HasSubstr("verdict on job 'outlives' could not be written to etcd"),
                        HasSubstr("the nodes are told nevertheless"),
                        HasSubstr("end of job 'outlives' could not be written to etcd")));
    }
  }
  lab_->start();
}

TEST_F(EtcdJobTest, AnEtcdThatIsAwayForLongerThanTheLeaseCostsARound) {
  const auto head = start("1:2", "pauses");
  ASSERT_TRUE(head->wait_for_output("hosts the rendezvous"));
  const auto other = start("1:2", "pauses");
  EXPECT_EQ(next_place(*other), (Place{1, 2, 1, 2, 0}));
  lab_->signal("stop", 1);
  EXPECT_TRUE(head->wait_for_output("is the head no more"));
  lab_->signal("cont", 1);
  Place place = next_place(*other);
  while (place.nodes == 1) place = next_place(*other);  // who came first began alone
  EXPECT_EQ(place.nodes, 2);
  finish_round(place);
  for (const auto* node : {&head, &other}) {
    const CommandResult result = (*node)->finish();
    EXPECT_EQ(result.exit_code, 0) << result.describe();
  }
}

TEST_F(EtcdJobTest, AnEtcdThatIsNotThereIsNamedWithinSeconds) {
  const CommandResult result = job_.run(
      {"--rdzv_backend=etcd-v2", "--rdzv_endpoint=127.0.0.1:1", "--join_timeout=0.1", "true"});
  EXPECT_EQ(result.exit_code, 69) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("127.0.0.1:1"));
  // The lab's own is at another port; where one is at the usual one, there is nothing to see.
  const CommandResult unnamed = job_.run({"--rdzv_backend=etcd-v2", "--rdzv_id=nobody", "true"});
  if (unnamed.exit_code == 0) GTEST_SKIP() << "an etcd runs at localhost:2379";
  EXPECT_EQ(unnamed.exit_code, 69) << unnamed.describe();
  EXPECT_THAT(unnamed.err, AllOf(HasSubstr("elected no head for 2 s"),
                                 HasSubstr("say where etcd is: --rdzv_endpoint=HOST:PORT")));
}

}  // namespace
}  // namespace dtrun::launcher
