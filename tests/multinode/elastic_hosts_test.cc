// Elastic jobs over three hosts of the lab, each with its own network: cut off, healed, crashed,
// without IPv4. Heartbeat windows of two seconds, so that it all takes seconds.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>

#include "dtrun/base/unique_fd.h"
#include "support/command.h"

namespace dtrun {
namespace {

using std::chrono::steady_clock;
using testing::AllOf;
using testing::HasSubstr;
using testing_support::Command;
using testing_support::CommandOptions;
using testing_support::CommandResult;
using testing_support::run_command;

constexpr int kHosts = 3;

class ElasticHostsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (::geteuid() != 0) return;
    folder_ = "/tmp/dtrun_elastic_XXXXXX";
    if (::mkdtemp(folder_.data()) == nullptr) ::abort();
    options_.environment["LAB_DIR"] = folder_ + "/lab";
    const CommandResult up =
        run_command({lab("hosts-up"), "--ttl", "600", std::to_string(kHosts)}, options_);
    if (up.exit_code != 0) reason_ = up.describe();
  }

  static void TearDownTestSuite() {
    if (folder_.empty()) return;
    run_command({lab("hosts-down")}, options_);
    std::error_code ignored;  // what cannot be removed is of a host that still ends
    std::filesystem::remove_all(folder_, ignored);
  }

  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to make hosts in network namespaces";
    ASSERT_EQ(reason_, "");
    static int number = 0;
    gate_ = folder_ + "/gate" + std::to_string(++number);
    ASSERT_EQ(::mkfifo(gate_.c_str(), 0600), 0);
  }

  void TearDown() override {
    for (auto& node : nodes_) node.reset();
    for (int host = 1; host <= kHosts && !folder_.empty(); ++host)
      run_command({lab("hosts-heal"), std::to_string(host)}, options_);
  }

  static std::string lab(const std::string& script) {
    return DTRUN_SOURCE_DIR "/tests/lab/slurm/" + script;
  }
  static CommandResult on_host(int host, const std::string& command) {
    return run_command({lab("hosts-exec"), std::to_string(host), "sh", "-c", command}, options_);
  }
  static void change_network(const std::vector<std::string>& words) {
    std::vector<std::string> command = {lab(words[0])};
    command.insert(command.end(), words.begin() + 1, words.end());
    const CommandResult result = run_command(command, options_);
    ASSERT_EQ(result.exit_code, 0) << result.describe();
  }

  // dtrun on a host, its standard error with its output. Its rank says where it is, and ends when
  // the gate opens.
  Command& start(int host, const std::string& nnodes, const std::string& endpoint = "node1:29500",
                 std::vector<std::string> more = {}) {
    std::vector<std::string> command = {
        lab("hosts-exec"),
        std::to_string(host),
        "sh",
        "-c",
        "exec \"$@\" 2>&1",
        "sh",
        DTRUN_BIN "/dtrun",
        "--nnodes=" + nnodes,
        "--rdzv_backend=c10d",
        "--rdzv_endpoint=" + endpoint,
        "--rdzv_id=elastic",
        "--shutdown_timeout=2",
        "--rdzv_conf=keep_alive_interval=0.4,keep_alive_max_attempt=5,last_call_timeout=0.3,"
        "close_timeout=2,join_timeout=20"};
    for (std::string& word : more) command.push_back(std::move(word));
    if (script_.empty())
      script_ =
          "echo up $RANK of $WORLD_SIZE at $MASTER_ADDR after $TORCHELASTIC_RESTART_COUNT; "
          "read word <" +
          gate_ + "; true";
    for (const std::string& word : {std::string("sh"), std::string("-c"), script_})
      command.push_back(word);
    auto& node = nodes_[static_cast<std::size_t>(host - 1)];
    node = std::make_unique<Command>(command, options_);
    return *node;
  }

  // Every rank ends with 0, whether it waits already or is about to: one byte is a whole line.
  void open_gate() {
    gate_fd_ = base::UniqueFd(::open(gate_.c_str(), O_RDWR | O_CLOEXEC));
    const std::string lines(kHosts, '\n');
    ASSERT_EQ(::write(gate_fd_.get(), lines.data(), lines.size()), kHosts);
  }

  using Change = std::function<void()>;
  void expect_no_rank_beside_the_next_round(const Change& fault, const Change& undo);

  static std::string folder_, reason_;
  static CommandOptions options_;
  std::string gate_;
  std::string script_;      // of the ranks; empty: says where it is, and waits for the gate
  base::UniqueFd gate_fd_;  // open for as long as somebody may read
  std::array<std::unique_ptr<Command>, kHosts> nodes_;
};

std::string ElasticHostsTest::folder_, ElasticHostsTest::reason_;
CommandOptions ElasticHostsTest::options_;

double seconds_since(steady_clock::time_point then) {
  return std::chrono::duration<double>(steady_clock::now() - then).count();
}

TEST_F(ElasticHostsTest, ANodeThatIsCutOffIsDroppedAfterTheWindowAndJoinsAgainWhenHealed) {
  Command& head = start(1, "2:3");
  Command& second = start(2, "2:3");
  Command* third = &start(3, "2:3");
  ASSERT_TRUE(head.wait_for_output("round 0: 3 nodes, 3 ranks"));
  ASSERT_TRUE(third->wait_for_output("up 2 of 3 at"));
  ASSERT_TRUE(head.wait_for_output("up 0 of 3") && second.wait_for_output("up 1 of 3"));
  change_network({"hosts-cut", "--silent", "3"});
  const auto cut = steady_clock::now();
  ASSERT_TRUE(head.wait_for_output("up 0 of 2 at"));
  ASSERT_TRUE(second.wait_for_output("up 1 of 2 at"));
  EXPECT_GT(seconds_since(cut), 0.7);
  EXPECT_LT(seconds_since(cut), 15.0);
  const CommandResult dropped = third->finish();
  EXPECT_NE(dropped.exit_code, 0) << dropped.describe();
  EXPECT_THAT(dropped.out, HasSubstr("node 0 (")) << dropped.describe();
  change_network({"hosts-heal", "3"});
  third = &start(3, "2:3");
  ASSERT_TRUE(third->wait_for_output("up 2 of 3 at")) << third->finish().describe();
  ASSERT_TRUE(head.wait_for_output("round 2: 3 nodes, 3 ranks"));
  // Neither the loss nor the return was a failure.
  ASSERT_TRUE(third->wait_for_output("after 0"));
  open_gate();
  for (auto& node : nodes_) {
    const CommandResult result = node->finish();
    EXPECT_EQ(result.exit_code, 0) << result.describe();
  }
}

// When whoever has the fifo open for writing has died. @param fd its other end
double time_of_last_writer(int fd) {
  pollfd end{fd, 0, 0};
  EXPECT_EQ(::poll(&end, 1, 60'000), 1);
  using std::chrono::system_clock;
  return std::chrono::duration<double>(system_clock::now().time_since_epoch()).count();
}

// The rank of host 2 ignores SIGTERM, and has a fifo open as long as it lives: all by one clock.
// @param fault befalls host 2; undone once the other has gone on
void ElasticHostsTest::expect_no_rank_beside_the_next_round(const Change& fault,
                                                            const Change& undo) {
  const std::vector<std::string> grace = {"--shutdown_timeout=20"};
  const std::string alive = gate_ + ".alive", begun = gate_ + ".begun", taken = gate_ + ".taken";
  ASSERT_EQ(::mkfifo(alive.c_str(), 0600), 0);
  script_ = "echo up $RANK of $WORLD_SIZE; date +%s.%N >" + begun +
            "; [ $WORLD_SIZE = 1 ] && [ -e " + taken + " ] && echo goes on alone; read word <" +
            gate_ + "; true";
  Command& head = start(1, "1:2", "node1:29500", grace);
  ASSERT_TRUE(head.wait_for_output("up 0 of 1"));
  script_ = "trap '' TERM; exec 3>" + alive + "; : >" + taken +
            "; echo up $RANK of $WORLD_SIZE; read word <" + gate_;
  const base::UniqueFd reader(::open(alive.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  Command& other = start(2, "1:2", "node1:29500", grace);
  ASSERT_TRUE(head.wait_for_output("up 0 of 2") && other.wait_for_output("up 1 of 2"));
  std::future<double> rank_end = std::async(std::launch::async, time_of_last_writer, reader.get());
  fault();
  ASSERT_TRUE(head.wait_for_output("goes on alone")) << head.finish().describe();
  undo();
  const CommandResult given_up = other.finish();
  EXPECT_EQ(given_up.exit_code, 1) << given_up.describe();
  double beginning = 0;
  ASSERT_TRUE(std::ifstream(begun) >> beginning);
  EXPECT_LT(rank_end.get(), beginning);
  open_gate();
  const CommandResult result = head.finish();
  EXPECT_EQ(result.exit_code, 0) << result.describe();
}

TEST_F(ElasticHostsTest, ANodeThatIsCutOffHasNoRankLeftWhenTheOthersGoOn) {
  expect_no_rank_beside_the_next_round(
      [] {
        change_network({"hosts-cut", "--silent", "2"});
      },
      [] {});
}

TEST_F(ElasticHostsTest, ANodeWhoseAgentAloneIsStoppedHasNoRankLeftWhenTheOthersGoOn) {
  const auto do_it = [](const std::vector<std::string>& command) {
    const CommandResult result = run_command(command, options_);
    ASSERT_EQ(result.exit_code, 0) << result.describe();
  };
  expect_no_rank_beside_the_next_round(
      [&] {
        do_it({lab("hosts-exec"), "2", "pkill", "-STOP", "-x", "dtrun"});
      },
      // The nsenter through which it was started has stopped, too, and resumes both.
      [&] {
        do_it({"pkill", "-CONT", "-P", std::to_string(nodes_[1]->pid())});
      });
}

TEST_F(ElasticHostsTest, WhenTheHeadsHostIsCutOffOrCrashesEverybodyGetsAVerdict) {
  for (const std::string& fault : {std::string("cut"), std::string("crash")}) {
    Command& head = start(1, "1:3");
    Command& second = start(2, "1:3");
    Command& third = start(3, "1:3");
    ASSERT_TRUE(second.wait_for_output("of 3 at") && third.wait_for_output("of 3 at"));
    ASSERT_TRUE(head.wait_for_output("of 3 at"));
    if (fault == "cut") {
      change_network({"hosts-cut", "--silent", "1"});
    } else {
      change_network({"hosts-crash", "1"});
    }
    const auto then = steady_clock::now();
    for (Command* node : {&second, &third}) {
      const CommandResult result = node->finish();
      EXPECT_LT(seconds_since(then), 15.0) << fault;
      EXPECT_FALSE(result.killed_at_limit) << fault;
      EXPECT_NE(result.exit_code, 0) << fault << result.describe();
      EXPECT_THAT(result.out, HasSubstr("node 0 (node1")) << fault;
    }
    for (const int host : {2, 3})
      EXPECT_EQ(on_host(host,
                        "pgrep -la dtrun; pgrep -fa '[r]ead word'; ls /dev/shm; "
                        "ss -Htunap | grep dtrun")
                    .out,
                "")
          << fault;
    // The head goes on with the nodes that it reaches: its own.
    if (fault == "cut") {
      EXPECT_TRUE(head.wait_for_output("up 0 of 1 at")) << head.finish().describe();
      open_gate();
      const CommandResult result = head.finish();
      EXPECT_EQ(result.exit_code, 0) << result.describe();
    }
    gate_fd_.reset();  // what nobody has read goes with it
    change_network({"hosts-heal", "1"});
  }
}

TEST_F(ElasticHostsTest, HostsMeetThroughAFileThatTheyShareAndALaterJobTakesItOver) {
  const std::string file = folder_ + "/head";
  const std::vector<std::string> by_file = {"--rdzv_conf=store_type=file,last_call_timeout=20"};
  Command& killed = start(3, "1:2", file, by_file);
  ASSERT_TRUE(killed.wait_for_output("node3 hosts the rendezvous at 10.88.0.3"));
  change_network({"hosts-crash", "3"});
  killed.finish();
  EXPECT_TRUE(std::filesystem::exists(file));
  Command& head = start(2, "1:2", file, by_file);
  ASSERT_TRUE(head.wait_for_output("node2 hosts the rendezvous at 10.88.0.2"));
  Command& member = start(1, "1:2", file, by_file);
  EXPECT_TRUE(head.wait_for_output("up 0 of 2 at 10.88.0.2")) << head.finish().describe();
  EXPECT_TRUE(member.wait_for_output("up 1 of 2 at 10.88.0.2")) << member.finish().describe();
  open_gate();
  for (Command* node : {&head, &member}) {
    const CommandResult result = node->finish();
    EXPECT_EQ(result.exit_code, 0) << result.describe();
  }
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST_F(ElasticHostsTest, HostsWithoutIPv4MeetByAddressAndByName) {
  for (int host = 1; host <= 2; ++host) {
    const std::string number = std::to_string(host);
    const CommandResult result =
        on_host(host, "ip addr flush dev eth0 scope global && ip -6 addr add fd88::" + number +
                          "/64 dev eth0 nodad");
    if (result.exit_code != 0) GTEST_SKIP() << "no IPv6 here: " << result.describe();
    std::ofstream(folder_ + "/lab/host" + number + "/hosts", std::ios::app)
        << "fd88::1 six1\nfd88::2 six2\n";
  }
  for (const std::string& endpoint : {std::string("[fd88::1]:29500"), std::string("six1:29500")}) {
    Command& head = start(1, "1:2", endpoint);
    Command& second = start(2, "1:2", endpoint);
    EXPECT_TRUE(head.wait_for_output("up 0 of 2 at")) << head.finish().describe();
    EXPECT_TRUE(second.wait_for_output("up 1 of 2 at")) << second.finish().describe();
    open_gate();
    for (Command* node : {&head, &second}) {
      const CommandResult result = node->finish();
      EXPECT_EQ(result.exit_code, 0) << result.describe();
    }
    gate_fd_.reset();
  }
  for (int host = 1; host <= 2; ++host)
    on_host(host, "ip addr add 10.88.0." + std::to_string(host) + "/24 dev eth0");
}

}  // namespace
}  // namespace dtrun
