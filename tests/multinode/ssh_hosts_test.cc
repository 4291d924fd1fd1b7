// dtrun --hosts over a real ssh: the starter on the lab's head, an sshd on each of its hosts, whose
// login shell greets before it does anything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <thread>

#include "launcher/living_processes.h"
#include "support/command.h"

namespace dtrun {
namespace {

using launcher::all_gone_within;
using launcher::describe_processes_with;
using std::chrono::seconds;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing_support::Command;
using testing_support::CommandOptions;
using testing_support::CommandResult;
using testing_support::run_command;

class SshHostsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to make hosts in network namespaces";
    if (::access("/usr/sbin/sshd", X_OK) != 0)
      GTEST_SKIP() << "no sshd here: scripts/install-packages --lab";
    std::string name = testing::TempDir() + "dtrun_ssh_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    options_.environment["LAB_DIR"] = folder_ + "/lab";
    const CommandResult up = run_command({lab("hosts-up"), "4"}, options_);
    ASSERT_EQ(up.exit_code, 0) << up.describe();
  }

  void TearDown() override {
    if (folder_.empty()) return;
    end_connections();
    run_command({lab("hosts-down")}, options_);
    std::filesystem::remove_all(folder_);
  }

  static std::string lab(const std::string& script) {
    return DTRUN_SOURCE_DIR "/tests/lab/slurm/" + script;
  }

  void start_sshd(std::vector<std::string> hosts) {
    hosts.insert(hosts.begin(), lab("hosts-sshd"));
    const CommandResult started = run_command(hosts, options_);
    ASSERT_EQ(started.exit_code, 0) << started.describe();
  }

  std::string ssh_folder() const { return folder_ + "/lab/ssh"; }

  // On the head, where ssh is the lab's. Connections are kept in a folder of this lab: every lab's
  // hosts have the same names, and one's connections would be taken for another's.
  std::vector<std::string> line(std::vector<std::string> words) const {
    std::vector<std::string> command = {lab("hosts-exec"), "0"};
    if (keeps_) {
      const std::string own = folder_ + "/connections";
      const std::vector<std::string> apart = {"unshare",
                                              "-m",
                                              "sh",
                                              "-c",
                                              "mkdir -p /tmp/dtrun-ssh-0 " + own +
                                                  " && mount --bind " + own +
                                                  " /tmp/dtrun-ssh-0 && exec \"$@\"",
                                              "sh"};
      command.insert(command.end(), apart.begin(), apart.end());
    }
    const std::vector<std::string> first = {
        "env", "PATH=" + ssh_folder() + ":/usr/sbin:/usr/bin:/sbin:/bin",
        std::string("DTRUN_SSH_PERSIST=") + (keeps_ ? "60" : "0"), DTRUN_BIN "/dtrun"};
    command.insert(command.end(), first.begin(), first.end());
    command.insert(command.end(), words.begin(), words.end());
    return command;
  }
  CommandResult run(std::vector<std::string> words) const {
    return run_command(line(std::move(words)), options_);
  }

  // Two ranks on each of two hosts, which run until they are ended.
  std::unique_ptr<Command> start_sleepers() {
    auto dtrun = std::make_unique<Command>(
        line({"--hosts=node1:2,node2:2", "sh", "-c", "echo up; exec sleep " + token_}), options_);
    for (int rank = 0; rank < 4; ++rank) EXPECT_TRUE(dtrun->next_line("up"));
    return dtrun;
  }

  static bool becomes_true(const std::function<bool()>& condition) {
    const auto until = std::chrono::steady_clock::now() + seconds(20);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::yield();
    }
    return true;
  }

  static std::string network_of(const std::string& pid) {
    std::error_code gone;
    return std::filesystem::read_symlink("/proc/" + pid + "/ns/net", gone);
  }

  // A process on the host whose line begins so and has the part. Of no other lab.
  pid_t find(int host, const std::string& beginning, const std::string& part) const {
    std::ifstream file(folder_ + "/lab/host" + std::to_string(host) + "/pid");
    std::string init;
    file >> init;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string pid = entry.path().filename();
      std::ifstream line(entry.path() / "cmdline");
      // A process that ends meanwhile has no line; an iterator would throw.
      std::ostringstream text;
      text << line.rdbuf();
      std::string words = text.str();
      std::ranges::replace(words, '\0', ' ');
      if (words.starts_with(beginning) && words.find(part) != std::string::npos &&
          network_of(pid) == network_of(init))
        return std::stoi(pid);
    }
    return 0;
  }

  pid_t find_ssh(const std::string& host) const {
    return find(0, "/usr/bin/ssh -F " + ssh_folder(), host);
  }

  // Asked to end, ssh takes its socket along. @return how many there were
  int end_connections() const {
    int ended = 0;
    while (const pid_t connection = kept_connection()) {
      ::kill(connection, SIGTERM);
      ++ended;
      // One that has ended has no command line.
      if (!becomes_true([&] { return kept_connection() != connection; })) {
        ADD_FAILURE() << "ssh's process " << connection << " does not end";
        return ended;
      }
    }
    return ended;
  }
  pid_t kept_connection() const { return find(0, "ssh: /tmp/dtrun-ssh-", "[mux]"); }

  void expect_nothing_left() const {
    EXPECT_TRUE(all_gone_within(token_, seconds(20))) << describe_processes_with(token_);
  }

  std::string folder_;
  CommandOptions options_;
  bool keeps_ = false;  ///< ssh's connections, as is the default
  const std::string token_ = launcher::unique_token();
};

/// With connections that are kept, and with connections that end with the job.
class SshConnectionsTest : public SshHostsTest, public testing::WithParamInterface<bool> {
 protected:
  SshConnectionsTest() { keeps_ = GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(Lab, SshConnectionsTest, testing::Bool(), [](const auto& keeps) {
  return std::string(keeps.param ? "Kept" : "New");
});

TEST_P(SshConnectionsTest, TwoHostsAreOneJob) {
  start_sshd({"1", "2"});
  const CommandResult result = run({"--hosts=node1:2,node2:2", DTRUN_BIN "/transports"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_THAT(result.out, HasSubstr("rank " + std::to_string(rank) +
                                      " sum right shared memory some tcp some\n"))
        << result.describe();
  EXPECT_THAT(result.out, Not(HasSubstr("Welcome")));
}

// Without their sshd the hosts can be reached by the connections of the job before alone.
TEST_F(SshHostsTest, ConnectionsThatAreKeptServeTheNextJob) {
  keeps_ = true;
  start_sshd({"1", "2"});
  const std::vector<std::string> words = {"--hosts=node1,node2", "true"};
  const CommandResult first = run(words);
  ASSERT_EQ(first.exit_code, 0) << first.describe();
  for (const int host : {1, 2}) {
    const pid_t listener = find(host, "sshd: ", "[listener]");
    ASSERT_GT(listener, 0);
    ::kill(listener, SIGKILL);
  }
  for (const bool is_killed : {true, false}) {
    if (is_killed) {
      const auto sleepers = start_sleepers();
      const pid_t starter = find(0, DTRUN_BIN "/dtrun", "--hosts=node1:2,node2:2");
      ASSERT_GT(starter, 0);
      ::kill(starter, SIGKILL);
      expect_nothing_left();
    }
    const CommandResult next = run(words);
    EXPECT_EQ(next.exit_code, 0) << next.describe();
  }
  keeps_ = false;
  const CommandResult fresh = run(words);
  EXPECT_EQ(fresh.exit_code, 69) << fresh.describe();
  EXPECT_EQ(end_connections(), 2);
}

TEST_F(SshHostsTest, AConnectionThatIsKilledEndsTheJobThatUsesIt) {
  keeps_ = true;
  start_sshd({"1", "2"});
  const auto dtrun = start_sleepers();
  const pid_t connection = kept_connection();
  ASSERT_GT(connection, 0);
  ::kill(connection, SIGKILL);
  const CommandResult result = dtrun->finish();
  EXPECT_EQ(result.exit_code, 69) << result.describe();
  EXPECT_THAT(result.err, ContainsRegex("node[12]: is lost: ssh ended with")) << result.describe();
  expect_nothing_left();
  // Its socket is left, and ssh connects anew.
  const CommandResult next = run({"--hosts=node1,node2", "true"});
  EXPECT_EQ(next.exit_code, 0) << next.describe();
}

TEST_F(SshHostsTest, AHostThatIsCutOffBehindItsConnectionIsToldAndComesBack) {
  keeps_ = true;
  start_sshd({"1", "2"});
  const CommandResult first = run({"--hosts=node1,node2", "true"});
  ASSERT_EQ(first.exit_code, 0) << first.describe();
  ASSERT_EQ(run_command({lab("hosts-cut"), "--silent", "2"}, options_).exit_code, 0);
  const CommandResult cut = run({"--hosts=node1,node2", "--join_timeout=3", "true"});
  EXPECT_EQ(cut.exit_code, 75) << cut.describe();
  EXPECT_THAT(cut.err, HasSubstr("node2: has not started dtrun within 3 s")) << cut.describe();
  ASSERT_EQ(run_command({lab("hosts-heal"), "2"}, options_).exit_code, 0);
  const CommandResult healed = run({"--hosts=node1,node2", "true"});
  EXPECT_EQ(healed.exit_code, 0) << healed.describe();
}

// A name in /tmp that everyone can take.
TEST_F(SshHostsTest, AFolderOfAnotherUserIsNotTrustedWithConnections) {
  keeps_ = true;
  start_sshd({"1", "2"});
  std::filesystem::create_directory(folder_ + "/connections");
  ASSERT_EQ(::chown((folder_ + "/connections").c_str(), 12345, 12345), 0);
  const CommandResult result = run({"--hosts=node1,node2", "echo", "here"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(result.out, "here\nhere\n") << result.describe();
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("ssh's connections are not kept"), HasSubstr("/tmp/dtrun-ssh-0")))
      << result.describe();
  EXPECT_EQ(kept_connection(), 0);
}

TEST_F(SshHostsTest, AHostMayHaveAnotherUserAndAnotherShell) {
  std::filesystem::permissions(folder_, std::filesystem::perms(0755));
  start_sshd({"1", "2", "3"});
  // Where that user may execute it, wherever the clone is.
  const std::string copy = folder_ + "/dtrun";
  std::filesystem::copy_file(DTRUN_BIN "/dtrun", copy);
  const std::string text = "it's \"here\" $x `y` !z";
  const CommandResult result =
      run({"--hosts=node1,other@node2,csh@node3", "--wdir=/", "--remote_dtrun=" + copy, "-x",
           "TEXT=" + text, "sh", "-c",
           "echo $RANK of $WORLD_SIZE: $(id -u) at $MASTER_ADDR, ${SHELL##*/}, $TEXT"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.sorted_lines(),
              testing::ElementsAre("0 of 3: 0 at 10.88.0.1, shell, " + text,
                                   "1 of 3: 12345 at 10.88.0.1, bash, " + text,
                                   "2 of 3: 12346 at 10.88.0.1, tcsh, " + text))
      << result.describe();
}

// Its cable is pulled: no end of any connection is seen there or here.
TEST_P(SshConnectionsTest, AHostThatIsCutOffEndsTheJobOnBothSides) {
  start_sshd({"1", "2"});
  auto dtrun =
      std::make_unique<Command>(line({"--hosts=node1:2,node2:2", "--shutdown_timeout=1",
                                      "--rdzv_conf=keep_alive_interval=1,keep_alive_max_attempt=2",
                                      "sh", "-c", "echo up; exec sleep " + token_}),
                                options_);
  for (int rank = 0; rank < 4; ++rank) ASSERT_TRUE(dtrun->next_line("up"));
  ASSERT_EQ(run_command({lab("hosts-cut"), "2"}, options_).exit_code, 0);
  const CommandResult result = dtrun->finish();
  EXPECT_EQ(result.exit_code, 69) << result.describe();
  EXPECT_THAT(result.err, AllOf(HasSubstr("node 1 (node2) is gone"),
                                HasSubstr("node2: has not ended within 6 s after the others")))
      << result.describe();
  expect_nothing_left();
}

// What the doctor says of each host, a line or more each.
std::map<std::string, std::string> by_host(const std::string& text) {
  std::map<std::string, std::string> lines;
  std::istringstream all(text);
  for (std::string line; std::getline(all, line);)
    lines[line.substr(0, line.find(':'))] += line + "\n";
  return lines;
}

TEST_F(SshHostsTest, TheDoctorFindsWhichHostsDoNotReachEachOther) {
  start_sshd({"1", "2", "3"});
  const std::vector<std::string> ask = {"doctor", "--hosts=node1,node2,node3"};
  const CommandResult well = run(ask);
  EXPECT_EQ(well.exit_code, 0) << well.describe();
  for (const auto& [host, text] : by_host(well.out)) {
    EXPECT_THAT(text,
                testing::ContainsRegex(": ok +reaches +node[12], node[23]; the slowest of 4"));
    EXPECT_THAT(text, Not(HasSubstr("not at port"))) << text;
  }
  EXPECT_THAT(by_host(well.out).at("node3"), testing::ContainsRegex("ok +clock of hosts +.*node1"));
  // Node 2 does not reach node 3, whose packets it does not answer either.
  ASSERT_EQ(run_command({lab("hosts-exec"), "2", "ip", "route", "add", "unreachable", "10.88.0.3"},
                        options_)
                .exit_code,
            0);
  const CommandResult cut = run(ask);
  EXPECT_EQ(cut.exit_code, 0) << cut.describe();
  const auto found = by_host(cut.out);
  EXPECT_THAT(found.at("node1"), testing::ContainsRegex("ok +reaches +node2, node3; "));
  EXPECT_THAT(found.at("node2"), testing::ContainsRegex("ok +reaches +node1; "));
  EXPECT_THAT(found.at("node2"), testing::ContainsRegex("bad +reaches node3 .*No route to host"));
  EXPECT_THAT(found.at("node3"), testing::ContainsRegex("bad +reaches node2 "));
  EXPECT_THAT(found.at("node3"), HasSubstr("try: let TCP through between the hosts"));
}

TEST_F(SshHostsTest, TheDoctorNeedsNoShellHereAndLeavesTheUserToIt) {
  start_sshd({"1"});
  const CommandResult result = run({"doctor", "--hosts=localhost,root@node1"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  const auto found = by_host(result.out);
  EXPECT_THAT(found.at("localhost"), testing::ContainsRegex("ok +reaches +node1; "));
  EXPECT_THAT(found.at("root@node1"), testing::ContainsRegex("ok +reaches +head; "));
}

TEST_F(SshHostsTest, TheDoctorFindsANameThatLeadsElsewhere) {
  start_sshd({"1", "2"});
  const CommandResult misled = run_command(
      {lab("hosts-exec"), "2", "sh", "-c",
       "sed 's/^10.88.0.1 /10.88.0.2 /' /etc/hosts >/tmp/h && cat /tmp/h >/etc/hosts; rm /tmp/h"},
      options_);
  ASSERT_EQ(misled.exit_code, 0) << misled.describe();
  const CommandResult result = run({"doctor", "--hosts=node1,node2"});
  EXPECT_THAT(by_host(result.out).at("node2"),
              testing::ContainsRegex("bad +reaches node1 .*port 29500: somebody else answers at "
                                     "10.88.0.2"))
      << result.describe();
}

TEST_F(SshHostsTest, AHostThatCannotBeVisitedHoldsUpNoOther) {
  start_sshd({"1", "2"});
  const CommandResult result = run({"doctor", "--json", "--hosts=node1,node4,node2"});
  EXPECT_EQ(result.exit_code, 69) << result.describe();
  EXPECT_THAT(result.err, AllOf(HasSubstr("1 of 3 hosts are not ready"), HasSubstr("node4: ")));
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("{\"host\":\"node1\""), HasSubstr("{\"host\":\"node2\"")));
}

TEST_F(SshHostsTest, FourHostsAndThisOneAreStartedInATree) {
  start_sshd({"1", "2", "3", "4"});
  std::ofstream(folder_ + "/hosts.txt") << "head slots=1\nnode1 slots=1\nnode[2-4] slots=2\n";
  const CommandResult result = run({"--hostfile=" + folder_ + "/hosts.txt", "--hosts_fanout=1",
                                    "--remote_shell=" + ssh_folder() + "/ssh -o BatchMode=yes",
                                    "sh", "-c", "echo $RANK of $WORLD_SIZE on $(hostname)"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.sorted_lines(),
              testing::ElementsAre("0 of 8 on head", "1 of 8 on node1", "2 of 8 on node2",
                                   "3 of 8 on node2", "4 of 8 on node3", "5 of 8 on node3",
                                   "6 of 8 on node4", "7 of 8 on node4"))
      << result.describe();
}

TEST_F(SshHostsTest, HostsThatSshCannotReachAreToldTogether) {
  start_sshd({"1", "2", "4"});
  // To node4 with a key that it does not know.
  run_command({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder_ + "/other_key"});
  std::ofstream(ssh_folder() + "/ssh")
      << "#!/bin/sh\nfor word; do case $word in node4) exec /usr/bin/ssh -F " << folder_
      << "/config4 \"$@\";; esac; done\nexec /usr/bin/ssh -F " << ssh_folder()
      << "/config \"$@\"\n";
  std::ifstream config(ssh_folder() + "/config");
  std::string text{std::istreambuf_iterator<char>(config), {}};
  text.replace(text.find(ssh_folder() + "/user_key"), (ssh_folder() + "/user_key").size(),
               folder_ + "/other_key");
  std::ofstream(folder_ + "/config4") << text;
  const CommandResult result = run({"--hosts=node1,10.88.0.2,node3,node4,no-such-host,10.88.0.99",
                                    "--join_timeout=20", "sh", "-c", "echo ran"});
  EXPECT_EQ(result.exit_code, 69) << result.describe();
  EXPECT_THAT(
      result.err,
      AllOf(HasSubstr("5 of 6 hosts are not ready"),
            HasSubstr("10.88.0.2: has a host key that is not known here"),
            HasSubstr("node3: refuses the connection"),
            HasSubstr("node4: accepts no key of yours, and would ask for a password"),
            HasSubstr("no-such-host: is not known here"),
            // As ssh says it when its time is over or, later, when the kernel knows that
            // nobody has the address; or as dtrun does when the others are known first.
            ContainsRegex("10.88.0.99: (does not answer|cannot be reached|has not answered yet)")))
      << result.describe();
  EXPECT_THAT(result.out, Not(HasSubstr("ran")));
}

TEST_F(SshHostsTest, WhatAHostLacksIsToldByName) {
  start_sshd({"1", "2"});
  const CommandResult binary = run({"--hosts=node1,node2", "--remote_dtrun=/no/dtrun", "true"});
  EXPECT_EQ(binary.exit_code, 69) << binary.describe();
  EXPECT_THAT(binary.err, HasSubstr("node1, node2: has no /no/dtrun"));
  const CommandResult program = run({"--hosts=node1,node2", "/no/program"});
  EXPECT_EQ(program.exit_code, 127) << program.describe();
  EXPECT_THAT(program.err, HasSubstr("node1, node2: there is no program '/no/program'"));
}

TEST_F(SshHostsTest, AHostWhoseDiskIsFullRunsItsRanksAndTellsWhatItCannotWrite) {
  start_sshd({"1", "2"});
  const std::string disk = folder_ + "/disk";
  std::filesystem::create_directory(disk);
  // On both hosts, so that the folder is no other one there; on the second it is full.
  for (const int host : {1, 2}) {
    const std::string fill = "mount -t tmpfs -o size=64k tmpfs " + disk +
                             (host == 2 ? "; head -c 100000 /dev/zero >" + disk + "/all" : "");
    run_command({lab("hosts-exec"), std::to_string(host), "sh", "-c", fill}, options_);
  }
  const std::vector<std::string> words = {"--hosts=node1,node2", "-x", "TMPDIR=" + disk};
  std::vector<std::string> plain = words, logged = words;
  plain.insert(plain.end(), {"sh", "-c", "echo $RANK"});
  const CommandResult well = run(plain);
  EXPECT_EQ(well.exit_code, 0) << well.describe();
  EXPECT_THAT(well.sorted_lines(), testing::ElementsAre("0", "1")) << well.describe();
  logged.insert(logged.end(),
                {"--log_dir=" + disk, "--redirects=3", "sh", "-c", "echo $RANK; : " + token_});
  const CommandResult lost = run(logged);
  // A full disk does not change the exit code, which is the ranks'.
  EXPECT_EQ(lost.exit_code, 0) << lost.describe();
  EXPECT_THAT(lost.err, ContainsRegex("cannot write the ranks' log files in .*/disk/.* on node2: "
                                      "No space left on device"))
      << lost.describe();
  expect_nothing_left();
}

TEST_P(SshConnectionsTest, ASignalToTheStarterEndsTheRanksOnAllHosts) {
  start_sshd({"1", "2"});
  const auto dtrun = start_sleepers();
  dtrun->signal(SIGINT);
  const CommandResult result = dtrun->finish();
  EXPECT_EQ(result.exit_code, 130) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("stopped by SIGINT"));
  expect_nothing_left();
}

TEST_P(SshConnectionsTest, AnSshThatIsKilledEndsTheJobOnAllHosts) {
  start_sshd({"1", "2"});
  const auto dtrun = start_sleepers();
  const pid_t ssh = find_ssh("node2");
  ASSERT_GT(ssh, 0);
  ::kill(ssh, SIGKILL);
  const CommandResult result = dtrun->finish();
  EXPECT_EQ(result.exit_code, 69) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("node2: is lost: ssh ended with SIGKILL")) << result.describe();
  expect_nothing_left();
}

// Its connection stays open for as long as the others have ranks.
TEST_P(SshConnectionsTest, AnSshThatIsKilledAfterItsRanksEndedEndsTheJobOnAllHosts) {
  start_sshd({"1", "2"});
  const std::string script =
      "echo up; [ $RANK = 1 ] && exit; trap 'exit 3' TERM; while :; do sleep 0.1; done; : " +
      token_;
  Command dtrun(line({"--hosts=node1,node2", "sh", "-c", script}), options_);
  for (int rank = 0; rank < 2; ++rank) ASSERT_TRUE(dtrun.next_line("up"));
  ASSERT_TRUE(becomes_true([&] { return find(2, "sh -c echo up", token_) == 0; }));
  const pid_t ssh = find_ssh("node2");
  ASSERT_GT(ssh, 0);
  ::kill(ssh, SIGKILL);
  const CommandResult result = dtrun.finish();
  EXPECT_EQ(result.exit_code, 69) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("node2: is lost: ssh ended with SIGKILL")) << result.describe();
  expect_nothing_left();
}

// The ranks have seen their signal and take their time.
TEST_P(SshConnectionsTest, AnSshThatIsKilledInTheGraceOfCtrlCLeavesNothing) {
  start_sshd({"1", "2"});
  const std::string script =
      "trap 'echo seen' INT TERM; echo up; while :; do sleep 0.1; done; : " + token_;
  Command dtrun(line({"--hosts=node1,node2", "--shutdown_timeout=4", "sh", "-c", script}),
                options_);
  for (int rank = 0; rank < 2; ++rank) ASSERT_TRUE(dtrun.next_line("up"));
  dtrun.signal(SIGINT);
  for (int rank = 0; rank < 2; ++rank) ASSERT_TRUE(dtrun.next_line("seen"));
  const pid_t ssh = find_ssh("node2");
  ASSERT_GT(ssh, 0);
  ::kill(ssh, SIGKILL);
  const CommandResult result = dtrun.finish();
  EXPECT_EQ(result.exit_code, 69) << result.describe();
  EXPECT_THAT(result.err, AllOf(HasSubstr("node2: is lost: ssh ended with SIGKILL"),
                                HasSubstr("stopped by SIGINT")))
      << result.describe();
  expect_nothing_left();
}

TEST_F(SshHostsTest, AnSshThatIsKilledWhileItConnectsIsTold) {
  start_sshd({"1", "2"});
  ASSERT_EQ(run_command({lab("hosts-cut"), "--silent", "2"}, options_).exit_code, 0);
  Command dtrun(line({"--hosts=node1,node2", "sh", "-c", "echo ran; : " + token_}), options_);
  ASSERT_TRUE(becomes_true([&] { return find_ssh("node2") != 0; }));
  ::kill(find_ssh("node2"), SIGKILL);
  const CommandResult result = dtrun.finish();
  EXPECT_EQ(result.exit_code, 69) << result.describe();
  EXPECT_THAT(result.err, ContainsRegex("node2: .*ssh ended with SIGKILL")) << result.describe();
  EXPECT_THAT(result.out, Not(HasSubstr("ran")));
  expect_nothing_left();
}

TEST_P(SshConnectionsTest, AnSshdThatIsKilledEndsTheJobOnAllHosts) {
  start_sshd({"1", "2"});
  const auto dtrun = start_sleepers();
  const pid_t session = find(2, "sshd: root", "");
  ASSERT_GT(session, 0);
  ::kill(session, SIGKILL);
  const CommandResult result = dtrun->finish();
  EXPECT_EQ(result.exit_code, 69) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("node2: is lost: ssh ended with")) << result.describe();
  expect_nothing_left();
}

TEST_P(SshConnectionsTest, ARelayThatIsKilledEndsTheJobOnAllHosts) {
  start_sshd({"1", "2"});
  const auto dtrun = start_sleepers();
  const pid_t relay = find(1, DTRUN_BIN "/dtrun --remote-agent=0", "");
  ASSERT_GT(relay, 0);
  ::kill(relay, SIGKILL);
  const CommandResult result = dtrun->finish();
  EXPECT_NE(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("node1: is lost")) << result.describe();
  expect_nothing_left();
}

TEST_P(SshConnectionsTest, AStarterThatIsKilledTakesAllHostsWithIt) {
  start_sshd({"1", "2"});
  const auto dtrun = start_sleepers();
  const pid_t starter = find(0, DTRUN_BIN "/dtrun --hosts=node1:2", token_);
  ASSERT_GT(starter, 0);
  ::kill(starter, SIGKILL);
  dtrun->finish();
  expect_nothing_left();
}

}  // namespace
}  // namespace dtrun
