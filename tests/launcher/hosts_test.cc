// dtrun --hosts: the lists of hosts, and jobs over a remote shell that is a script of the test's:
// it runs the command here, or fails as ssh does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <fstream>
#include <map>
#include <memory>
#include <regex>
#include <set>

#include "dtrun/base/socket.h"
#include "hosts/host_list.h"
#include "hosts/host_order.h"
#include "launcher/launcher_job.h"
#include "launcher/living_processes.h"
#include "support/promptness.h"
#include "support/thrown_error.h"

namespace dtrun::launcher {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing_support::Command;
using testing_support::CommandResult;
using testing_support::error_of;

std::string written(const std::vector<ListedHost>& hosts) {
  std::string text;
  for (const ListedHost& host : hosts)
    text += host.name + (host.slots ? "=" + std::to_string(*host.slots) : "") + " ";
  return text;
}

std::string refusal_of_list(const std::string& text) {
  const auto error = error_of([&] { parse_host_list(text, "--hosts"); });
  return error ? error->what() : "accepted";
}

TEST(HostList, NamesRanksRangesAndAddressesAreRead) {
  EXPECT_EQ(written(parse_host_list("a:4,b:2", "--hosts")), "a=4 b=2 ");
  EXPECT_EQ(written(parse_host_list("a, b", "--hosts")), "a b ");
  EXPECT_EQ(written(parse_host_list("me@gpu[1-2,07]:8,x", "--hosts")),
            "me@gpu1=8 me@gpu2=8 me@gpu07=8 x ");
  EXPECT_EQ(written(parse_host_list("[fd00::1]:4,10.0.0.2:1", "--hosts")), "fd00::1=4 10.0.0.2=1 ");
}

TEST(HostList, WhatIsWrongInAListIsNamed) {
  EXPECT_THAT(refusal_of_list("a:0"), HasSubstr("--hosts=a:0 gives '0' ranks"));
  EXPECT_THAT(refusal_of_list("a:-1"), HasSubstr("'-1' ranks"));
  EXPECT_THAT(refusal_of_list("a:x"), HasSubstr("'x' ranks"));
  EXPECT_THAT(refusal_of_list("a:99999999999999999999"), HasSubstr("ranks to a host"));
  EXPECT_THAT(refusal_of_list(""), HasSubstr("has no host's name"));
  EXPECT_THAT(refusal_of_list("a,,b"), HasSubstr("has no host's name"));
  EXPECT_THAT(refusal_of_list("a:1,a:1"), HasSubstr("names a twice"));
  EXPECT_THAT(refusal_of_list("-oProxyCommand=x"), HasSubstr("has no host's name"));
  EXPECT_THAT(refusal_of_list("a;reboot"), HasSubstr("has no host's name"));
  EXPECT_THAT(refusal_of_list("fd00::1"), HasSubstr("in brackets"));
  EXPECT_THAT(refusal_of_list("gpu[1-"), HasSubstr("is not closed"));
}

TEST(HostList, TheHostfilesOfOpenMpiAndMpichAreRead) {
  EXPECT_EQ(written(parse_hostfile("# ours\na slots=4\n\n b slots=2 max_slots=8 # two\nc\n", "f")),
            "a=4 b=2 c ");
  EXPECT_EQ(written(parse_hostfile("a:4\nb:2 binding=user:0\n", "f")), "a=4 b=2 ");
  EXPECT_EQ(written(parse_hostfile("a slots=4\nb slots=1\na slots=2\n", "f")), "a=6 b=1 ");
  EXPECT_EQ(written(parse_hostfile("a\r\nb:3", "f")), "a b=3 ");
  const auto refusal = [](const std::string& text) {
    const auto error = error_of([&] { parse_hostfile(text, "f"); });
    return std::string(error ? error->what() : "accepted");
  };
  EXPECT_THAT(refusal("# nobody\n"), HasSubstr("f names no host"));
  EXPECT_THAT(refusal("a\nb slots=0\n"), HasSubstr("f:2 gives '0' ranks"));
  EXPECT_THAT(refusal("a slots=2 slotz=3\n"), HasSubstr("f:1 has 'slotz=3'"));
  EXPECT_THAT(refusal("a\na\n"), HasSubstr("f:2 names a twice, once without ranks"));
}

TEST(HostOrder, EveryByteOfAnOrderArrives) {
  HostOrder order;
  order.version = "1";
  std::string bytes;
  for (int byte = 1; byte < 256; ++byte) bytes += static_cast<char>(byte);
  order.program = {bytes, "", "\"'$x\n"};
  order.environment = {{"A", bytes}};
  order.nodes = {{"a", 0, "4", HostPlace::kThisMachine}, {"b", 1, "gpu"}};
  const std::string line = order.to_line();
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const HostOrder read = HostOrder::parse(line);
  EXPECT_EQ(read.program, order.program);
  EXPECT_EQ(read.environment, order.environment);
  ASSERT_EQ(read.nodes.size(), 2u);
  EXPECT_EQ(read.nodes[0].place, HostPlace::kThisMachine);
  EXPECT_EQ(read.nodes[1].ranks, "gpu");
}

TEST(HostOrder, ADamagedOneIsAnErrorOfTheProtocol) {
  HostOrder order;
  order.nodes = {{"a", 0, "1"}};
  const std::string line = order.to_line();
  for (const std::string& damaged :
       {std::string("{}\n"), std::string("[]"), line.substr(0, 30), std::string("hello"),
        std::regex_replace(line, std::regex("\\[\\{.*\\}\\]"), "[]")}) {
    const auto error = error_of([&] { HostOrder::parse(damaged); });
    ASSERT_TRUE(error) << damaged;
    EXPECT_EQ(error->code(), base::ErrorCode::kProtocol) << damaged;
  }
}

TEST(HostOrder, ATreeHasEachNodeOnceAndThisMachineAlone) {
  std::vector<HostNode> nodes;
  for (int i = 0; i < 10; ++i) nodes.push_back({"h" + std::to_string(i), i, "1"});
  nodes[4].place = HostPlace::kThisMachine;
  const auto groups = divided(nodes, 4);
  ASSERT_EQ(groups.size(), 5u);
  std::vector<int> seen;
  for (const auto& group : groups)
    for (const HostNode& node : group) {
      seen.push_back(node.node_rank);
      EXPECT_TRUE(node.place == HostPlace::kRemote || group.size() == 1);
    }
  std::ranges::sort(seen);
  EXPECT_THAT(seen, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
}

TEST(HostOrder, ByDefaultATreeBeginsBeyond32Hosts) {
  std::vector<HostNode> nodes;
  for (int i = 0; i < 32; ++i) nodes.push_back({"h" + std::to_string(i), i, "1"});
  EXPECT_EQ(divided(nodes, HostOrder{}.fanout).size(), 32u);
  nodes.push_back({"h32", 32, "1"});
  const auto groups = divided(nodes, HostOrder{}.fanout);
  EXPECT_EQ(groups.size(), 32u);
  EXPECT_EQ(groups.front().size() + groups.back().size(), 3u);
}

// Hosts are addresses of the loopback, and names for which the script fails.
class HostsTest : public testing::Test {
 protected:
  HostsTest() {
    write_script("shell", R"(#!/bin/bash
host=$1; shift
echo "$*" >>"$LOG"
case $host in
  refused*) echo "ssh: connect to host $host port 22: Connection refused" >&2; exit 255 ;;
  denied*) echo "me@$host: Permission denied (publickey,password)." >&2; exit 255 ;;
  absent*) shift; exec sh -c "/no/such/dtrun $*" ;;
  silent*) exec sleep 1000 ;;
  127.0.0.8) sleep 0.3; exec "$@" ;;
  chatty*) echo "Have a nice day"; exit 0 ;;
  other*) echo "DTRUN-AGENT 1 99.0.0 cafe 0"; exec cat >/dev/null ;;
  mute*) echo "DTRUN-AGENT 2 )" +
                              version() + R"( cafe 0"; exec cat >/dev/null ;;
  dies*) echo "DTRUN-AGENT 2 )" +
                              version() + R"( cafe 0"; read order; exit 9 ;;
  127.0.0.9) printf 'Welcome!\nlast login: never'; exec "$@" ;;
  *) exec "$@" ;;
esac
)");
    job_.options().environment["LOG"] = job_.folder() + "/log";
    job_.options().folder = job_.folder();
  }

  static std::string version() {
    const std::string text = run_dtrun({"--version"}).out;
    return text.substr(6, text.find('\n') - 6);
  }

  void write_script(const std::string& name, const std::string& text) {
    std::ofstream(job_.folder() + "/" + name) << text;
    ::chmod((job_.folder() + "/" + name).c_str(), 0700);
  }

  std::vector<std::string> line(const std::string& hosts, std::vector<std::string> rest) const {
    std::vector<std::string> words = {"--hosts=" + hosts,
                                      "--remote-shell=" + job_.folder() + "/shell"};
    words.insert(words.end(), rest.begin(), rest.end());
    return words;
  }
  CommandResult run(const std::string& hosts, std::vector<std::string> rest) {
    return job_.run(line(hosts, std::move(rest)));
  }

  LauncherJob job_;
  const std::string token_ = unique_token();
};

TEST_F(HostsTest, EachHostRunsEachProgramWithTheVariablesOfTheStarter) {
  ASSERT_EQ(::mkdir((job_.folder() + "/here").c_str(), 0700), 0);
  job_.options().environment["GIVEN"] = "it's \"quoted\"";
  const std::string place = "echo $0 $RANK of $WORLD_SIZE $DTRUN_APP_NUM $GIVEN ${PWD##*/} $1";
  const CommandResult result =
      run("127.0.0.2,127.0.0.3", {"env", "-u", "GIVEN", "sh", "-c", place, "a", ":",  //
                                  "-x", "GIVEN", "--wdir=here", "--", "sh", "-c", place, "b", ":"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  const std::string there = job_.folder().substr(job_.folder().rfind('/') + 1);
  EXPECT_THAT(result.out, AllOf(HasSubstr("a 0 of 4 0 " + there), HasSubstr("a 2 of 4 0 " + there),
                                HasSubstr("b 1 of 4 1 it's \"quoted\" here :\n"),
                                HasSubstr("b 3 of 4 1 it's \"quoted\" here :\n")))
      << result.describe();
  const CommandResult slots = run("127.0.0.2:2,127.0.0.3", {"true", ":", "true"});
  EXPECT_EQ(slots.exit_code, 64) << slots.describe();
  EXPECT_THAT(slots.err, HasSubstr("127.0.0.2 is to have 2 ranks, but several programs are named"));
}

TEST_F(HostsTest, TwoHostsAreOneJobWithTheFoldersAndVariablesOfItsStarter) {
  ASSERT_EQ(::mkdir((job_.folder() + "/here").c_str(), 0700), 0);
  job_.options().environment["GIVEN"] = "it's \"quoted\" $HOME";
  const CommandResult result =
      run("127.0.0.2:2,127.0.0.9:1",
          {"-x", "GIVEN", "-x", "NEW=a b\nc", "--wdir=here", "sh", "-c",
           "echo \"$RANK of $WORLD_SIZE on $GROUP_RANK $GIVEN $NEW ${PWD##*/} $1\"", "sh", "x 'y"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  const std::string rest = " it's \"quoted\" $HOME a b\nc here x 'y\n";
  EXPECT_THAT(result.out, AllOf(HasSubstr("0 of 3 on 0" + rest), HasSubstr("1 of 3 on 0" + rest),
                                HasSubstr("2 of 3 on 1" + rest), Not(HasSubstr("Welcome"))))
      << result.describe();
  EXPECT_THAT(result.err, IsEmpty());
}

TEST_F(HostsTest, TheRemoteShellGetsNothingButTheNameOfDtrun) {
  const CommandResult result =
      run("127.0.0.2,127.0.0.3", {"-x", "SECRET=pass word", "sh", "-c", "true"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  std::ifstream log(job_.folder() + "/log");
  std::vector<std::string> lines;
  for (std::string text; std::getline(log, text);) lines.push_back(text);
  EXPECT_THAT(lines, testing::UnorderedElementsAre(DTRUN_BINARY " --remote-agent=0",
                                                   DTRUN_BINARY " --remote-agent"));
}

// It is a fork of the relay, whose own line is "dtrun --remote-agent".
TEST_F(HostsTest, AHostsDtrunHasTheLineOfItsJobInPs) {
  job_.options().environment["GIVEN"] = "more than a line's worth: " + std::string(2000, 'x');
  Command dtrun = job_.start(line("127.0.0.2", {"sh", "-c", "echo up; exec sleep " + token_}));
  ASSERT_TRUE(dtrun.next_line("up"));
  // With its keeper and its guard.
  EXPECT_EQ(processes_with("-- sh -c echo up; exec sleep " + token_).size(), 3u)
      << describe_processes_with(token_);
  dtrun.signal(SIGTERM);
  dtrun.finish();
  EXPECT_TRUE(all_gone_within(token_, seconds(10))) << describe_processes_with(token_);
}

TEST_F(HostsTest, ASlowHostIsWaitedForWhicheverItIs) {
  for (const char* hosts : {"127.0.0.8,127.0.0.2", "127.0.0.2,127.0.0.8"}) {
    const CommandResult result = run(hosts, {"sh", "-c", "echo $RANK of $WORLD_SIZE"});
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_THAT(result.sorted_lines(), ElementsAre("0 of 2", "1 of 2"));
  }
}

// This host is told to start only when the first host has let all ranks start.
TEST_F(HostsTest, RanksMayEndBeforeTheWordToStartComesToTheirHost) {
  write_script("shell", R"(#!/bin/bash
host=$1; shift
[[ $host == 127.0.0.2 ]] && exec "$@"
exec "$@" < <(while IFS= read -r line; do [[ $line == go ]] && sleep 0.5; printf '%s\n' "$line"; done)
)");
  const CommandResult well = run("127.0.0.2,127.0.0.3", {"sh", "-c", "echo $RANK"});
  EXPECT_EQ(well.exit_code, 0) << well.describe();
  EXPECT_THAT(well.sorted_lines(), ElementsAre("0", "1"));
  EXPECT_THAT(well.err, IsEmpty());
  const CommandResult failed = run("127.0.0.2,127.0.0.3", {"sh", "-c", "exit $((7 * RANK))"});
  EXPECT_EQ(failed.exit_code, 7) << failed.describe();
}

// It holds the output, and is nobody's but the script's: neither waited for nor killed.
TEST_F(HostsTest, WhatALoginScriptLeavesBehindIsLeftAlone) {
  write_script("shell", "#!/bin/bash\nshift\nsleep " + token_ + " &\nexec \"$@\"\n");
  const CommandResult result = run("127.0.0.2,127.0.0.3", {"sh", "-c", "echo $RANK"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.sorted_lines(), ElementsAre("0", "1"));
  EXPECT_LT(result.elapsed.count(), 8.0);
  const std::vector<pid_t> left = processes_with(token_);
  EXPECT_EQ(left.size(), 2u);
  for (const pid_t pid : left) ::kill(pid, SIGKILL);
}

TEST_F(HostsTest, AStoppedStarterStopsTheRanksAndGoesOnWithThem) {
  Command dtrun = job_.start(line(
      "127.0.0.2,127.0.0.3", {"sh", "-c", "echo up; while :; do sleep 0.1; done; : " + token_}));
  for (int rank = 0; rank < 2; ++rank) ASSERT_TRUE(dtrun.next_line("up"));
  const auto is_stopped = [](pid_t pid, const std::string& called) {
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string number, name, state;
    stat >> number >> name >> state;
    return name == called && state == "T";
  };
  const auto stopped = [&] {
    int count = is_stopped(dtrun.pid(), "(dtrun)") ? 1 : 0;
    for (const pid_t pid : processes_with(token_)) count += is_stopped(pid, "(sh)") ? 1 : 0;
    return count;
  };
  const auto becomes = [&](int count) {
    const auto end = std::chrono::steady_clock::now() + seconds(10);
    while (stopped() != count)
      if (std::chrono::steady_clock::now() > end) return false;
    return true;
  };
  dtrun.signal(SIGTSTP);
  EXPECT_TRUE(becomes(3));
  dtrun.signal(SIGCONT);
  EXPECT_TRUE(becomes(0));
  dtrun.signal(SIGTERM);
  EXPECT_EQ(dtrun.finish().exit_code, 143);
  EXPECT_TRUE(all_gone_within(token_, seconds(5))) << describe_processes_with(token_);
}

TEST_F(HostsTest, WhoeverReadsTheOutputMayLeave) {
  const std::string hosts = line("127.0.0.2,127.0.0.3", {})[0], shell = line("a", {})[1];
  const CommandResult result =
      testing_support::run_command({"bash", "-c",
                                    std::string(DTRUN_BINARY) + " " + hosts + " " + shell +
                                        " sh -c 'while :; do echo y; done; : " + token_ +
                                        "' | head -n 3; echo ${PIPESTATUS[0]}"},
                                   job_.options());
  EXPECT_THAT(result.out, HasSubstr("y\ny\ny\n141\n")) << result.describe();
  EXPECT_TRUE(all_gone_within(token_, seconds(5))) << describe_processes_with(token_);
}

TEST_F(HostsTest, OutputThatIsLostOnAFullDiskIsToldAndFailsTheJob) {
  std::string words;
  for (const std::string& word : line("127.0.0.2,127.0.0.3", {"sh -c 'echo x' >/dev/full"}))
    words += " " + word;
  const CommandResult result = testing_support::run_command(
      {"bash", "-c", std::string(DTRUN_BINARY) + words}, job_.options());
  EXPECT_EQ(result.exit_code, 71) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("4 bytes of the ranks' output are lost"));
}

TEST_F(HostsTest, ARemoteShellThatIsNotThereIsNamed) {
  const CommandResult result = job_.run({"--hosts=a,b", "--remote_shell=/no/such/shell", "true"});
  EXPECT_EQ(result.exit_code, 64) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("there is no remote shell '/no/such/shell'"));
}

TEST_F(HostsTest, AFloodOfSeveralHostsArrivesWhole) {
  const CommandResult result = testing_support::run_command(
      {"bash", "-c",
       std::string(DTRUN_BINARY) + " " + line("127.0.0.2:2,127.0.0.3,127.0.0.4", {})[0] +
           " --hosts_fanout=1 " + line("a", {})[1] +
           " sh -c 'head -c 4000000 /dev/zero | tr \\\\0 $RANK | fold -w 99; echo' | "
           "{ sleep 0.2; sort | uniq -c; }"},
      job_.options());
  // 40404 lines of 99, and the rest of 4.
  for (const char rank : {'0', '1', '2', '3'}) {
    EXPECT_THAT(result.out, HasSubstr("40404 " + std::string(99, rank) + "\n"))
        << result.describe().substr(0, 3000);
    EXPECT_THAT(result.out, HasSubstr("1 " + std::string(4, rank) + "\n"));
  }
}

TEST_F(HostsTest, TheExitCodeIsThatOfTheRankThatFailed) {
  const CommandResult result = run("127.0.0.2:2,127.0.0.3:2",
                                   {"sh", "-c", "test $RANK = 3 && exit 42; exec sleep " + token_});
  EXPECT_EQ(result.exit_code, 42) << result.describe();
  EXPECT_TRUE(all_gone_within(token_, seconds(5))) << describe_processes_with(token_);
}

TEST_F(HostsTest, AnExitCodeOf255IsNoLostConnection) {
  const CommandResult result = run("127.0.0.2,127.0.0.3", {"sh", "-c", "exit 255"});
  EXPECT_EQ(result.exit_code, 255) << result.describe();
  EXPECT_THAT(result.err, Not(HasSubstr("is lost")));
}

TEST_F(HostsTest, AllHostsThatFailAreToldTogetherAndNoRankHasRun) {
  const CommandResult result = run("127.0.0.2,refused1,denied1,absent1,chatty1,other1,dies1",
                                   {"sh", "-c", "echo ran; exec sleep " + token_});
  EXPECT_EQ(result.exit_code, 69) << result.describe();
  EXPECT_THAT(
      result.err,
      AllOf(HasSubstr("6 of 7 hosts are not ready"), HasSubstr("refused1: refuses the connection"),
            HasSubstr("denied1: accepts no key of yours, and would ask for a password"),
            HasSubstr("absent1: has no " DTRUN_BINARY), HasSubstr("chatty1: has not started dtrun"),
            HasSubstr("Have a nice day"), HasSubstr("other1: has dtrun 99.0.0, and this is dtrun"),
            HasSubstr("dies1: is lost: shell ended with exit code 9")))
      << result.describe();
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_TRUE(all_gone_within(token_, seconds(5))) << describe_processes_with(token_);
}

// Their ends may come in one turn of the loop.
TEST_F(HostsTest, HostsThatFailInTheSameMomentAreAllTold) {
  write_script("shell", "#!/bin/sh\nexit 127\n");
  for (int round = 0; round < 20; ++round) {
    const CommandResult result = run("a,b,c,d,e,f,g,h", {"--hosts_fanout=8", "true"});
    ASSERT_EQ(result.exit_code, 69) << result.describe();
    ASSERT_THAT(result.err, AllOf(HasSubstr("8 of 8 hosts are not ready"),
                                  HasSubstr("a, b, c, d, e, f, g, h: has no")))
        << result.describe();
  }
}

TEST_F(HostsTest, ASilentHostIsGivenUpWhenTheTimeToJoinIsOver) {
  const CommandResult result = run("127.0.0.2,silent1,mute1", {"--join_timeout=1", "true"});
  EXPECT_EQ(result.exit_code, 75) << result.describe();
  EXPECT_THAT(result.err, AllOf(HasSubstr("2 of 3 hosts are not ready"),
                                HasSubstr("silent1: has not started dtrun within 1 s"),
                                HasSubstr("mute1: has not become ready within 1 s")))
      << result.describe();
}

TEST_F(HostsTest, WhatAHostLacksIsToldBeforeAnyRankRuns) {
  const CommandResult program = run("127.0.0.2,127.0.0.3", {"./no_such_program"});
  EXPECT_EQ(program.exit_code, 127) << program.describe();
  EXPECT_THAT(program.err,
              HasSubstr("127.0.0.2, 127.0.0.3: there is no program './no_such_program'"));
  const CommandResult folder = run("127.0.0.2,127.0.0.3", {"--wdir=/no/such/folder", "true"});
  EXPECT_EQ(folder.exit_code, 64) << folder.describe();
  EXPECT_THAT(folder.err, HasSubstr("cannot work in the folder /no/such/folder"));
}

TEST_F(HostsTest, CtrlCEndsTheRanksOnAllHosts) {
  Command dtrun = job_.start(
      line("127.0.0.2:2,127.0.0.3:2", {"sh", "-c", "echo up $RANK; exec sleep " + token_}));
  for (int rank = 0; rank < 4; ++rank) ASSERT_TRUE(dtrun.next_line("up"));
  dtrun.signal(SIGINT);
  const CommandResult result = dtrun.finish();
  EXPECT_EQ(result.exit_code, 130) << result.describe();
  EXPECT_TRUE(all_gone_within(token_, seconds(5))) << describe_processes_with(token_);
}

TEST_F(HostsTest, AKilledStarterTakesEverythingWithIt) {
  {
    Command dtrun = job_.start(
        line("127.0.0.2:2,127.0.0.3:2", {"sh", "-c", "echo up $RANK; exec sleep " + token_}));
    for (int rank = 0; rank < 4; ++rank) ASSERT_TRUE(dtrun.next_line("up"));
    dtrun.signal(SIGKILL);
    dtrun.finish();
  }
  EXPECT_TRUE(all_gone_within(token_, seconds(10))) << describe_processes_with(token_);
}

// The script has become the relay by exec, so that it is one process.
TEST_F(HostsTest, ALostHostEndsTheJobOnTheOthersAndIsNamed) {
  Command dtrun = job_.start(
      line("127.0.0.2:2,127.0.0.3:2", {"sh", "-c", "echo up $RANK; exec sleep " + token_}));
  for (int rank = 0; rank < 4; ++rank) ASSERT_TRUE(dtrun.next_line("up"));
  const std::vector<pid_t> relays = children_of(dtrun.pid());
  ASSERT_EQ(relays.size(), 2u);
  ::kill(relays[1], SIGKILL);
  const CommandResult result = dtrun.finish();
  EXPECT_EQ(result.exit_code, 69) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("is lost: shell ended with SIGKILL")) << result.describe();
  EXPECT_TRUE(all_gone_within(token_, seconds(10))) << describe_processes_with(token_);
}

// A host that dies at each state of its start, beside one that does not: before its greeting, after
// it, after the order, and when it was ready. Always an error that names it, and nothing is left.
TEST_F(HostsTest, AHostMayDieAtEachStateOfTheStart) {
  write_script(
      "shell",
      R"(#!/bin/bash
host=$1; shift
if [[ $host != dies ]]; then exec "$@"; fi
case $STATE in
  start) kill -KILL $$ ;;
  greeting) echo "DTRUN-AGENT 2 )" +
          version() + R"( cafe 0"; kill -KILL $$ ;;
  half) printf 'DTRUN-AGENT 2 )" +
          version() + R"('; kill -KILL $$ ;;
  order) echo "DTRUN-AGENT 2 )" +
          version() + R"( cafe 0"; read order; kill -KILL $$ ;;
  ready) echo "DTRUN-AGENT 2 )" +
          version() + R"( cafe 0"; read order; printf '\x1ecafe ready\n'; kill -KILL $$ ;;
  go) echo "DTRUN-AGENT 2 )" +
          version() +
          R"( cafe 0"; read order; printf '\x1ecafe ready\n'; read port; read go; kill -KILL $$ ;;
esac
)");
  for (const char* state : {"start", "greeting", "half", "order", "ready", "go"}) {
    job_.options().environment["STATE"] = state;
    const CommandResult result = run("127.0.0.2:2,dies", {"sh", "-c", "exec sleep " + token_});
    EXPECT_EQ(result.exit_code, 69) << state << result.describe();
    EXPECT_THAT(result.err, HasSubstr("dies: ")) << state << result.describe();
    EXPECT_THAT(result.err, HasSubstr("shell ended with SIGKILL")) << state << result.describe();
    EXPECT_TRUE(all_gone_within(token_, seconds(5))) << describe_processes_with(token_);
  }
  EXPECT_THAT(job_.left_behind(), ElementsAre("shell"));
}

// A host's dtrun is started as soon as the host is ready, and waits for the others there.
TEST_F(HostsTest, ADtrunThatDiesWhileItWaitsForOtherHostsIsNamed) {
  Command dtrun = job_.start(line("127.0.0.2,mute1", {"sleep", token_}));
  pid_t waiting = 0;
  const auto late = std::chrono::steady_clock::now() + seconds(20);
  while (waiting == 0 && std::chrono::steady_clock::now() < late)
    for (const pid_t pid : processes_with(token_))
      if (pid != dtrun.pid() && processes_of(pid).guard != 0) waiting = pid;
  ASSERT_NE(waiting, 0) << describe_processes_with(token_);
  ::kill(waiting, SIGKILL);
  const CommandResult result = dtrun.finish();
  EXPECT_EQ(result.exit_code, 69) << result.describe();
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("127.0.0.2: its dtrun ended with exit code 137 before the job began"),
                    HasSubstr("mute1: has not answered yet")))
      << result.describe();
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_TRUE(all_gone_within(token_, seconds(10))) << describe_processes_with(token_);
}

TEST_F(HostsTest, WhyADtrunEndsBeforeTheJobIsTold) {
  const std::string file = job_.folder() + "/shell";
  const CommandResult result = run("127.0.0.2,mute1", {"--log_dir=" + file, "true"});
  EXPECT_EQ(result.exit_code, 69) << result.describe();
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("127.0.0.2: its dtrun ended with exit code 64 before the job began"),
                    HasSubstr("why: --log_dir=" + file + " is no folder")))
      << result.describe();
}

TEST_F(HostsTest, WarningsOfAHostsDtrunAreToldOnceTheJobBegins) {
  job_.options().environment["TMPDIR"] = "/no/such/folder";
  const CommandResult result = run("127.0.0.2,127.0.0.8", {"true"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("nothing can be written to TMPDIR=/no/such/folder"))
      << result.describe();
  const CommandResult failed = run("127.0.0.2,refused1", {"true"});
  EXPECT_THAT(failed.err, Not(HasSubstr("TMPDIR"))) << failed.describe();
}

TEST_F(HostsTest, CtrlCWhileAHostIsAwaitedEndsTheDtrunsThatAreReady) {
  Command dtrun = job_.start(line("127.0.0.2,mute1", {"sleep", token_}));
  const auto late = std::chrono::steady_clock::now() + seconds(20);
  while (processes_with(token_).size() < 2 && std::chrono::steady_clock::now() < late) {
  }
  dtrun.signal(SIGINT);
  EXPECT_EQ(dtrun.finish().exit_code, 130);
  EXPECT_TRUE(all_gone_within(token_, seconds(10))) << describe_processes_with(token_);
}

// Hosts on this machine, of which each dtrun starts at most six.
TEST_F(HostsTest, ManyHostsAreStartedInATree) {
  std::string hosts = "127.0.1.1";
  for (int host = 2; host <= DTRUN_TREE_HOSTS; ++host) hosts += ",127.0.1." + std::to_string(host);
  write_script("shell", "#!/bin/bash\necho \"$1 from $PPID\" >>\"$LOG\"; shift; exec \"$@\"\n");
  const CommandResult result =
      run(hosts, {"--hosts_fanout=6", "sh", "-c", "echo rank $RANK; test $RANK != 50 || exit 5"});
  EXPECT_EQ(result.exit_code, 5) << result.describe();
  std::ifstream log(job_.folder() + "/log");
  std::map<std::string, int> started_by;
  std::set<std::string> started;
  for (std::string text; std::getline(log, text);) {
    started.insert(text.substr(0, text.find(' ')));
    ++started_by[text.substr(text.rfind(' '))];
  }
  EXPECT_EQ(started.size(), std::size_t{DTRUN_TREE_HOSTS});
  for (const auto& [parent, count] : started_by) EXPECT_LE(count, 6);
  // One node tells the failure, not each.
  std::size_t tables = 0;
  for (auto at = result.err.find("FAILED"); at != std::string::npos;
       at = result.err.find("FAILED", at + 1))
    ++tables;
  EXPECT_EQ(tables, 1u) << result.err;
}

TEST_F(HostsTest, AHostDeepInTheTreeIsNamedWhereItFails) {
  const CommandResult result = run("127.0.0.2,127.0.0.3,127.0.0.4,refused1,silent1",
                                   {"--hosts_fanout=1", "--join_timeout=60", "true"});
  EXPECT_NE(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("refused1: refuses the connection")) << result.describe();
}

TEST_F(HostsTest, LongLinesStayWholeAndTheLastOneNeedsNoEnd) {
  const CommandResult result =
      run("127.0.0.2:2,127.0.0.3:2",
          {"sh", "-c", "head -c 300000 /dev/zero | tr '\\0' $RANK; echo; printf end$RANK"});
  EXPECT_EQ(result.exit_code, 0) << result.describe().substr(0, 2000);
  for (const char rank : {'0', '1', '2', '3'})
    EXPECT_THAT(result.out,
                AllOf(HasSubstr(std::string(300000, rank)), HasSubstr(std::string("end") + rank)));
}

TEST_F(HostsTest, ADryRunTellsThePlanAndStartsNothing) {
  const CommandResult text = run(
      "127.0.0.2:4,127.0.0.3", {"--nproc_per_node=2", "--dry-run", "-x", "A=secret", "./app", "x"});
  EXPECT_EQ(text.exit_code, 0) << text.describe();
  EXPECT_THAT(text.out, AllOf(HasSubstr("0  127.0.0.2  4"), HasSubstr("1  127.0.0.3  2"),
                              HasSubstr("HOST " DTRUN_BINARY " --remote-agent"),
                              HasSubstr("./app x"), Not(HasSubstr("secret"))));
  const CommandResult json = run("127.0.0.2:4,127.0.0.3", {"--dry-run=json", "./app"});
  EXPECT_THAT(json.out, HasSubstr(R"({"node_rank":0,"host":"127.0.0.2","ranks":"4")"))
      << json.describe();
  EXPECT_THAT(job_.left_behind(), ElementsAre("shell"));
}

TEST_F(HostsTest, ConnectionsAreKeptUnlessTheUserHasDecidedOtherwise) {
  job_.options().environment["HOME"] = job_.folder();
  const auto words_of_ssh = [&](const std::string& option) {
    const CommandResult plan = job_.run({"--hosts=a,b", option, "--dry-run=json", "true"});
    EXPECT_EQ(plan.exit_code, 0) << plan.describe();
    return plan.out.substr(plan.out.find("remote_command"));
  };
  EXPECT_THAT(words_of_ssh("--tag=auto"), HasSubstr("ControlPersist=60"));
  EXPECT_THAT(words_of_ssh("--ssh_persist=5"), HasSubstr("ControlPersist=5"));
  EXPECT_THAT(words_of_ssh("--ssh_persist=0"), Not(HasSubstr("Control")));
  EXPECT_THAT(words_of_ssh("--remote_shell=mine"), Not(HasSubstr("Control")));
  ASSERT_EQ(::mkdir((job_.folder() + "/.ssh").c_str(), 0700), 0);
  std::ofstream(job_.folder() + "/.ssh/config") << "Host *\n  ControlMaster auto\n";
  EXPECT_THAT(words_of_ssh("--tag=auto"), Not(HasSubstr("Control")));
  EXPECT_THAT(words_of_ssh("--ssh_persist=5"), HasSubstr("ControlPersist=5"));
}

TEST_F(HostsTest, APortThatIsTakenOnTheFirstHostIsTold) {
  const base::UniqueFd taken = base::listen_tcp("127.0.0.1", 0);
  const std::string port = std::to_string(base::local_port(taken.get()));
  const CommandResult result =
      run("127.0.0.2,127.0.0.3", {"--master_port=" + port, "sh", "-c", "true"});
  EXPECT_EQ(result.exit_code, 69) << result.describe();
  EXPECT_THAT(result.err, AllOf(HasSubstr("127.0.0.2: cannot begin"), HasSubstr(port)))
      << result.describe();
}

TEST_F(HostsTest, WithoutHostsFolderAndVariablesAreThoseOfTheRanksToo) {
  const CommandResult result =
      job_.run({"-x", "A=1", "-xB=2", "--wdir=/", "sh", "-c", "echo $A $B $PWD"});
  EXPECT_EQ(result.out, "1 2 /\n") << result.describe();
  EXPECT_THAT(job_.run({"--wdir=/no/such", "true"}).err,
              HasSubstr("cannot work in the folder /no/such"));
}

TEST_F(HostsTest, OptionsThatContradictTheHostsAreRefusedByName) {
  const auto refusal = [&](const std::string& option) {
    const CommandResult result = run("127.0.0.2,127.0.0.3", {option, "true"});
    EXPECT_EQ(result.exit_code, 64) << result.describe();
    return result.err;
  };
  for (const char* option : {"--nnodes=2", "--node_rank=0", "--master_addr=a", "--standalone",
                             "--rdzv_backend=c10d", "--rdzv_endpoint=a", "--hostfile=f", "--adopt"})
    EXPECT_THAT(refusal(option),
                AllOf(HasSubstr(std::string(option).substr(0, std::string(option).find('='))),
                      HasSubstr("--hosts")));
  EXPECT_THAT(refusal("--stdin=0"), HasSubstr("--stdin=0 cannot be had with --hosts"));
  EXPECT_THAT(refusal("--max_restarts=x"), HasSubstr("--max_restarts=x"));
  EXPECT_THAT(refusal("-xNO_SUCH_VARIABLE"), HasSubstr("there is no such variable here"));
  EXPECT_THAT(refusal("--remote-dtrun=a b"), HasSubstr("is no path for --remote_dtrun"));
  EXPECT_THAT(job_.run({"--hosts=localhost,127.0.0.1", "true"}).err,
              HasSubstr("localhost and 127.0.0.1 are both this machine"));
  EXPECT_THAT(job_.run({"--hostfile=" + job_.folder() + "/none", "true"}).err,
              HasSubstr("cannot read --hostfile"));
}

}  // namespace
}  // namespace dtrun::launcher
