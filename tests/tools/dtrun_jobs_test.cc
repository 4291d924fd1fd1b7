// dtrun ps, status, stacks and signal, beside jobs that hang, are stopped, and end.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <boost/json.hpp>

#include "dtrun/base/json.h"
#include "support/command.h"

namespace dtrun {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing_support::Command;
using testing_support::CommandResult;
using testing_support::run_command;
using Words = std::vector<std::string>;

CommandResult dtrun(Words words) {
  words.insert(words.begin(), DTRUN_BINARY);
  return run_command(words);
}

/// A job of three ranks, of which rank 1 does not come to the all_reduce of the others.
class JobsTest : public testing::Test {
 protected:
  JobsTest() : job_({DTRUN_BINARY, "--nproc_per_node=3", FLIGHT_WORKER_BINARY, "hang"}) {}
  ~JobsTest() override {
    job_.signal(SIGTERM);
    job_.finish();
  }

  std::string pid() const { return std::to_string(job_.pid()); }
  boost::json::value status() {
    const CommandResult told = dtrun({"status", pid(), "--json"});
    return told.exit_code == 0 ? base::parse_json(told.out, "the status") : boost::json::value();
  }
  /// Until two ranks wait in the all_reduce: asked again and again, as a user would.
  void await_hang() {
    for (int waiting = 0; waiting < 2;) {
      ASSERT_GT(job_.pid(), 0);
      const boost::json::value now = status();
      if (now.is_null()) continue;
      waiting = 0;
      for (const boost::json::value& rank : now.at("ranks").as_array()) {
        const auto* const operation = rank.as_object().if_contains("operation");
        if (operation != nullptr && operation->at("name").as_string() == "all_reduce" &&
            operation->at("waiting_for").as_int64() == 1)
          ++waiting;
      }
    }
  }

  Command job_;
};

TEST_F(JobsTest, AJobThatHangsIsListedAndEachRankSaysWhereItIs) {
  await_hang();
  const CommandResult listed = dtrun({"ps"});
  EXPECT_EQ(listed.exit_code, 0) << listed.describe();
  EXPECT_THAT(listed.out, AllOf(HasSubstr(" " + pid() + " "), HasSubstr(" 0-2 of 3 "),
                                HasSubstr("1 computing, 2 in a collective"),
                                HasSubstr(FLIGHT_WORKER_BINARY " hang")));
  const CommandResult told = dtrun({"status", pid()});
  EXPECT_EQ(told.exit_code, 0) << told.describe();
  for (const char* const rank : {"rank 0 (pid ", "rank 2 (pid "}) {
    const std::size_t at = told.out.find(rank);
    ASSERT_NE(at, std::string::npos) << told.describe();
    const std::string line = told.out.substr(at, told.out.find('\n', at) - at);
    EXPECT_THAT(line, AllOf(HasSubstr("in all_reduce #2 of group 'world' at flight_worker.cc:"),
                            HasSubstr(" for "), HasSubstr(", waits for rank 1")));
  }
  EXPECT_THAT(told.out, HasSubstr("computes since barrier #1 of group 'world'"));
  // By its id as by its pid.
  const std::string id(status().at("id").as_string());
  EXPECT_THAT(dtrun({"status", id.substr(0, 12)}).out, HasSubstr("(pid " + pid() + ")"));
}

TEST_F(JobsTest, TheStackOfOneRankIsShown) {
  await_hang();
  const CommandResult one = dtrun({"stacks", pid(), "1"});
  EXPECT_EQ(one.exit_code, 0) << one.describe();
  EXPECT_THAT(one.out, AllOf(HasSubstr("== rank 1 (pid "), Not(HasSubstr("== rank 0"))));
  // Where nothing shows stacks, the kernel's word for its threads.
  testing_support::CommandOptions without;
  without.environment["PATH"] = "/nowhere";
  const CommandResult kernel = run_command({DTRUN_BINARY, "stacks", pid(), "--rank=1"}, without);
  EXPECT_EQ(kernel.exit_code, 0) << kernel.describe();
  EXPECT_THAT(kernel.out, AllOf(HasSubstr("no eu-stack, gdb or py-spy is here"),
                                HasSubstr("(flight_worker) waits in ")));
  if (one.err.find("not permitted") != std::string::npos ||
      one.out.find("no eu-stack") != std::string::npos)
    GTEST_SKIP() << "no debugger here may look into a process";
  EXPECT_THAT(one.out, HasSubstr("pause")) << one.describe();
}

TEST_F(JobsTest, SignalsGoToOneRankOrToTheJob) {
  await_hang();
  const auto rank_1 = [&] {
    return std::string(status().at("ranks").at(1).at("does").as_string());
  };
  EXPECT_EQ(dtrun({"signal", pid(), "1", "--signal=STOP"}).exit_code, 0);
  while (rank_1().find("stopped by a signal") == std::string::npos) ASSERT_GT(job_.pid(), 0);
  EXPECT_EQ(dtrun({"signal", pid(), "1", "--signal=SIGCONT"}).exit_code, 0);
  const CommandResult ended = dtrun({"signal", pid()});
  EXPECT_THAT(ended.out, HasSubstr("dtrun (pid " + pid() + ") has SIGTERM")) << ended.describe();
  EXPECT_THAT(job_.finish().err, HasSubstr("stopped by SIGTERM"));
  const CommandResult gone = dtrun({"status", "0"});
  EXPECT_EQ(gone.exit_code, 71) << gone.describe();
  EXPECT_THAT(gone.err,
              AllOf(HasSubstr("no job \"0\" runs on this machine"), HasSubstr("dtrun ps")));
}

TEST_F(JobsTest, OtherUsersSeeNothing) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be somebody else";
  await_hang();
  const CommandResult other = run_command(
      {"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", DTRUN_BINARY, "ps"});
  EXPECT_EQ(other.exit_code, 0) << other.describe();
  EXPECT_THAT(other.out, Not(HasSubstr(pid())));
}

TEST_F(JobsTest, WhatMakesNoSenseIsRefused) {
  await_hang();
  const auto refused = [](Words words, int code, const char* why) {
    const CommandResult result = dtrun(std::move(words));
    EXPECT_EQ(result.exit_code, code) << result.describe();
    EXPECT_THAT(result.err, HasSubstr(why));
  };
  refused({"signal", pid(), "--signal=FOO"}, 64, "one of ABRT CONT HUP");
  refused({"stacks", pid(), "7"}, 71, "rank 7 is not on this machine");
  refused({"status", pid(), "7"}, 64, "dtrun ps --help");
  refused({"status", "no-such-job"}, 71, "dtrun ps, on the machine of the ranks");
  // After an option the word is a program's.
  EXPECT_THAT(dtrun({"--nproc_per_node=1", "status", "no-such-job"}).err,
              Not(HasSubstr("runs on this machine")));
}

TEST(JobListTest, APlainProgramIsToldAsWhatHasNotJoined) {
  Command job({DTRUN_BINARY, "--nproc_per_node=1", "sh", "-c", "echo ready; sleep 60"});
  ASSERT_TRUE(job.wait_for_output("ready"));
  const CommandResult told = dtrun({"status", std::to_string(job.pid())});
  EXPECT_THAT(told.out, HasSubstr("runs; it has not joined the job")) << told.describe();
  job.signal(SIGTERM);
  job.finish();
}

}  // namespace
}  // namespace dtrun
