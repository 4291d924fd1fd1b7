// What the options about signals, graces and exit codes are read as.
#include "options/stop_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "dtrun/base/error.h"
#include "options/options.h"
#include "sources/option_sources.h"

namespace dtrun::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using Action = SignalPolicy::Action;

StopOptions read(std::vector<std::string> arguments, const base::Environment& environment = {}) {
  arguments.emplace_back("true");
  return parse_options("dtrun", arguments, environment).stop;
}

std::string error_of_argument(const std::string& argument,
                              const base::Environment& environment = {}) {
  try {
    read({argument}, environment);
  } catch (const base::Error& error) {
    EXPECT_EQ(error.code(), base::ErrorCode::kUsage);
    return error.what();
  }
  return "no error";
}

TEST(StopOptionsTest, WithoutAWordFourSignalsStopTwoAreForwardedAndOnePauses) {
  const StopOptions options = read({});
  for (const int number : {SIGTERM, SIGINT, SIGQUIT})
    EXPECT_EQ(options.policy_of(number)->action, Action::kStop);
  for (const int number : {SIGUSR1, SIGUSR2})
    EXPECT_EQ(options.policy_of(number)->action, Action::kForward);
  EXPECT_EQ(options.policy_of(SIGWINCH), nullptr);
  EXPECT_EQ(options.policy_of(SIGTSTP)->action, Action::kPause);
  // nohup, and a shell without job control.
  StopOptions left;
  left.signals = default_signals({SIGHUP, SIGTSTP});
  EXPECT_EQ(left.policy_of(SIGHUP), nullptr);
  EXPECT_EQ(left.policy_of(SIGTSTP), nullptr);
}

TEST(StopOptionsTest, EachSignalHasItsActionAndItsTime) {
  const StopOptions options =
      read({"--on-signal=USR1=drain:10m,SIGTERM=drain,2=stop:0.5,HUP=ignore,USR2=stop:300ms"});
  EXPECT_EQ(options.policy_of(SIGUSR1)->action, Action::kDrain);
  EXPECT_EQ(options.policy_of(SIGUSR1)->time, seconds(600));
  EXPECT_EQ(options.policy_of(SIGTERM)->action, Action::kDrain);
  EXPECT_LT(options.policy_of(SIGTERM)->time.count(), 0);
  EXPECT_EQ(options.policy_of(SIGINT)->time, milliseconds(500));
  EXPECT_EQ(options.policy_of(SIGHUP)->action, Action::kIgnore);
  EXPECT_EQ(options.policy_of(SIGUSR2)->time, milliseconds(300));
}

TEST(StopOptionsTest, TorchrunsListNamesThoseThatStop) {
  const StopOptions options = read({"--signals-to-handle=SIGTERM,SIGUSR1"});
  EXPECT_EQ(options.policy_of(SIGUSR1)->action, Action::kStop);
  EXPECT_EQ(options.policy_of(SIGTERM)->action, Action::kStop);
  EXPECT_EQ(options.policy_of(SIGINT), nullptr);
  EXPECT_EQ(options.policy_of(SIGUSR2)->action, Action::kForward);
}

TEST(StopOptionsTest, GracesFollowTheShutdownTimeoutUnlessTheyAreGiven) {
  EXPECT_EQ(read({}).shutdown_timeout, seconds(30));
  EXPECT_EQ(read({"--shutdown-timeout=7"}).restart_timeout, seconds(7));
  const StopOptions options = read({"--restart-timeout=1", "--failure-timeout=2"});
  EXPECT_EQ(options.shutdown_timeout, seconds(30));
  EXPECT_EQ(options.restart_timeout, seconds(1));
  EXPECT_EQ(options.failure_timeout, seconds(2));
  base::Environment environment;
  environment.set("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "5");
  EXPECT_EQ(read({}, environment).shutdown_timeout, seconds(5));
  EXPECT_EQ(read({"--shutdown-timeout=7"}, environment).shutdown_timeout, seconds(7));
}

TEST(StopOptionsTest, WhatCannotBeReadIsNamed) {
  EXPECT_THAT(error_of_argument("--on-signal=KILL=stop"),
              HasSubstr("no signal that dtrun can handle"));
  EXPECT_THAT(error_of_argument("--on-signal=NONSENSE=stop"), HasSubstr("'NONSENSE'"));
  EXPECT_THAT(error_of_argument("--on-signal=TERM"), HasSubstr("NAME=ACTION"));
  EXPECT_THAT(error_of_argument("--on-signal=TERM=die"), HasSubstr("'die'"));
  EXPECT_THAT(error_of_argument("--on-signal=TERM=drain:soon"), HasSubstr("600s"));
  EXPECT_THAT(error_of_argument("--on-signal=USR1=forward:5"), HasSubstr("only stop and drain"));
  EXPECT_THAT(error_of_argument("--on-signal=TSTP=pause:5"), HasSubstr("only stop and drain"));
  EXPECT_THAT(error_of_argument("--signals-to-handle=SIGCHLD"), HasSubstr("SIGCHLD"));
  EXPECT_THAT(error_of_argument("--shutdown-timeout=-1"), HasSubstr("0 or more"));
  EXPECT_THAT(error_of_argument("--failure-timeout=x"), HasSubstr("--failure-timeout"));
  base::Environment environment;
  environment.set("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "-5");
  EXPECT_THAT(error_of_argument("-v", environment), HasSubstr("TORCH_ELASTIC_SHUTDOWN_TIMEOUT=-5"));
  for (const char* bad : {"last", "rank:", "rank:x", "map:", "map:1", "map:1=300", "map:a=1"})
    EXPECT_THAT(error_of_argument(std::string("--exit=") + bad), HasSubstr("must be first, max"));
}

int code_by(const char* policy, const std::vector<FailedRank>& failed) {
  return exit_code_by(parse_exit_policy(policy), failed);
}

TEST(ExitPolicyTest, TheFirstTheHighestOneRanksOrAnother) {
  const std::vector<FailedRank> failed = {{3, 7, false}, {1, 137, false}, {2, 1, false}};
  EXPECT_EQ(code_by("first", failed), 7);
  EXPECT_EQ(code_by("max", failed), 137);
  EXPECT_EQ(code_by("rank:2", failed), 1);
  EXPECT_EQ(code_by("rank:0", failed), 7);
  EXPECT_EQ(code_by("map:7=0,*=9", failed), 0);
  EXPECT_EQ(code_by("map:8=0,*=9", failed), 9);
  EXPECT_EQ(code_by("map:8=0", failed), 7);
}

TEST(ExitPolicyTest, TheOomKillerMayHaveACodeOfItsOwn) {
  EXPECT_EQ(code_by("map:oom=93,*=1", {{0, 137, true}}), 93);
  EXPECT_EQ(code_by("map:oom=93,*=1", {{0, 137, false}}), 1);
  EXPECT_EQ(code_by("first", {{0, 137, true}}), 137);
}

}  // namespace
}  // namespace dtrun::launcher
