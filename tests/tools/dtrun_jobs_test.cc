// dtrun ps, status, stacks and signal, beside jobs that hang, are stopped, and end.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "dtrun/base/json.h"
#include "support/command.h"

namespace dtrun {
namespace {

using testing::AllOf;
using testing::AnyOf;
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

/// A job of three ranks, of which rank 1 does not come to the all_reduce of the others. Its agent
/// looks at the ranks for the metrics, and is not to be taken for its guard.
class JobsTest : public testing::Test {
 protected:
  JobsTest()
      : job_({DTRUN_BINARY, "--nproc_per_node=3", "--metrics-port=0", FLIGHT_WORKER_BINARY,
              "hang"}) {}
  ~JobsTest() override {
    job_.signal(SIGTERM);
    job_.finish();
  }

  std::string pid() const { return std::to_string(job_.pid()); }
  boost::json::value status() {
    const CommandResult told = dtrun({"status", pid(), "--json"});
    return told.exit_code == 0 ? base::parse_json(told.out, "the status") : boost::json::value();
  }
  /// Until two ranks wait in the all_reduce, and the third has left the barrier before it: asked
  /// again and again, as a user would.
  void await_hang() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (int settled = 0; settled < 3;) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "the job does not come to its hang";
      const boost::json::value now = status();
      if (now.is_null()) continue;
      settled = 0;
      for (const boost::json::value& rank : now.at("ranks").as_array()) {
        const auto* const operation = rank.as_object().if_contains("operation");
        if (operation == nullptr) continue;
        const bool waits = operation->at("name").as_string() == "all_reduce" &&
                           operation->at("waiting_for").as_int64() == 1;
        const bool has_left =
            rank.at("rank").as_int64() == 1 && !operation->at("running").as_bool();
        settled += waits || has_left ? 1 : 0;
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

TEST_F(JobsTest, TheRecordOfALivingJobIsWrittenAndExplained) {
  await_hang();
  const std::string path = testing::TempDir() + "dtrun_living_" + pid() + ".json";
  const CommandResult written = dtrun({"status", pid(), "--record", path});
  EXPECT_EQ(written.exit_code, 0) << written.describe();
  EXPECT_THAT(written.out, HasSubstr("dtrun-explain " + path));
  const CommandResult said = run_command({DTRUN_EXPLAIN_BINARY, path});
  EXPECT_EQ(said.exit_code, 0) << said.describe();
  EXPECT_THAT(said.out,
              AllOf(HasSubstr("round 0: ranks 0-2"),
                    HasSubstr("all_reduce #2 of group 'world' (f32 x 8, sum)"),
                    HasSubstr("ranks 0 and 2 have waited for "), HasSubstr("rank 1 has not come")));
  std::filesystem::remove(path);
  const CommandResult shown = dtrun({"status", pid(), "--record", "-"});
  const boost::json::value record = base::parse_json(shown.out, "the record");
  EXPECT_EQ(record.at("format").as_string(), "dtrun flight record 1");
  EXPECT_EQ(record.at("job"), status().at("id"));
  EXPECT_EQ(record.at("world_size").as_int64(), 3);
  EXPECT_TRUE(record.at("cause").is_null());
  const CommandResult nowhere = dtrun({"status", pid(), "--record", "/nowhere/record.json"});
  EXPECT_NE(nowhere.exit_code, 0);
  EXPECT_THAT(nowhere.err, HasSubstr("write /nowhere/record.json"));
  EXPECT_EQ(dtrun({"status", pid(), "--record", "-", "--json"}).exit_code, 64);
}

TEST_F(JobsTest, TheStackOfOneRankIsShown) {
  await_hang();
  const CommandResult one = dtrun({"stacks", pid(), "1"});
  EXPECT_EQ(one.exit_code, 0) << one.describe();
  EXPECT_THAT(one.out, AllOf(HasSubstr("== rank 1 (pid "), Not(HasSubstr("== rank 0"))));
  // Where nothing shows stacks, its memory does, and where that may not be read, the kernel's word.
  testing_support::CommandOptions without;
  without.environment["PATH"] = "/nowhere";
  const CommandResult kernel = run_command({DTRUN_BINARY, "stacks", pid(), "--rank=1"}, without);
  EXPECT_EQ(kernel.exit_code, 0) << kernel.describe();
  EXPECT_THAT(
      kernel.out,
      AllOf(HasSubstr("no eu-stack, gdb or py-spy is here"), HasSubstr("(flight_worker)"),
            AnyOf(HasSubstr(" main in flight_worker\n"), HasSubstr("(flight_worker) waits in "))));
  // It runs on.
  EXPECT_THAT(dtrun({"status", pid()}).out, HasSubstr("rank 1 (pid "));
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
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (rank_1().find("stopped by a signal") == std::string::npos)
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  EXPECT_EQ(dtrun({"signal", pid(), "1", "--signal=SIGCONT"}).exit_code, 0);
  const CommandResult ended = dtrun({"signal", pid()});
  EXPECT_THAT(ended.out, HasSubstr("dtrun (pid " + pid() + ") has SIGTERM")) << ended.describe();
  EXPECT_THAT(job_.finish().err, HasSubstr("stopped by SIGTERM"));
  const CommandResult gone = dtrun({"status", pid()});
  EXPECT_EQ(gone.exit_code, 71) << gone.describe();
  EXPECT_THAT(gone.err, AllOf(HasSubstr("runs on this machine"), HasSubstr("dtrun ps")));
}

TEST_F(JobsTest, OtherUsersSeeNothing) {
  const Words as_other = {"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"};
  const auto by_other = [&](Words words) {
    words.insert(words.begin(), as_other.begin(), as_other.end());
    return run_command(words);
  };
  if (by_other({"test", "-x", DTRUN_BINARY}).exit_code != 0)
    GTEST_SKIP() << "needs root, to be somebody else, who may run dtrun";
  await_hang();
  const CommandResult other = by_other({DTRUN_BINARY, "status", pid()});
  EXPECT_EQ(other.exit_code, 71) << other.describe();
  EXPECT_THAT(other.err, HasSubstr("of another user or container, is not seen"));
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
  refused({"status", pid(), "7"}, 64, "dtrun status --help");
  refused({"signal"}, 64, "JOB is required");
  refused({"stacks", pid(), "x"}, 64, "dtrun stacks --help");
  refused({"status", "no-such-job"}, 71, "dtrun ps, on the machine of the ranks");
  // After an option the word is a program's.
  EXPECT_THAT(dtrun({"--nproc_per_node=1", "status", "no-such-job"}).err,
              Not(HasSubstr("runs on this machine")));
}

// Each level's dtrun is a rank of the one above.
TEST(JobListTest, AJobInAJobIsOneOfItsOwn) {
  Command job({DTRUN_BINARY, "--nproc_per_node=2", "--tag=never", DTRUN_BINARY,
               "--nproc_per_node=1", "sh", "-c", "echo ready; sleep 60"});
  ASSERT_TRUE(job.next_line("ready"));
  ASSERT_TRUE(job.next_line("ready"));
  const auto jobs = base::parse_json(dtrun({"ps", "--json"}).out, "the list");
  const boost::json::array* ranks = nullptr;
  for (const boost::json::value& one : jobs.as_array())
    if (one.at("pid").as_int64() == job.pid()) ranks = &one.at("ranks").as_array();
  ASSERT_NE(ranks, nullptr);
  ASSERT_EQ(ranks->size(), 2U);
  for (const boost::json::value& rank : *ranks) {
    const CommandResult inner = dtrun({"status", std::to_string(rank.at("pid").as_int64())});
    EXPECT_EQ(inner.exit_code, 0) << inner.describe();
    EXPECT_THAT(inner.out, HasSubstr("ranks 0 of 1"));
  }
  job.signal(SIGTERM);
  job.finish();
}

TEST(JobListTest, NumbersAreThoseOfThisPidNamespace) {
  Command job({DTRUN_BINARY, "--nproc_per_node=1", "--containment=namespace", "--tag=never", "sh",
               "-c", "echo ready; sleep 60; true"});
  if (!job.wait_for_output("ready"))
    GTEST_SKIP() << "no pid namespace can be made here: " << job.finish().err;
  const CommandResult told = dtrun({"status", std::to_string(job.pid()), "--json"});
  ASSERT_EQ(told.exit_code, 0) << told.describe();
  const auto now = base::parse_json(told.out, "the status");
  const std::int64_t rank = now.at("ranks").at(0).at("pid").as_int64();
  std::ifstream file("/proc/" + std::to_string(rank) + "/comm");
  std::string name;
  std::getline(file, name);
  EXPECT_EQ(name, "sh") << told.describe();
  EXPECT_NE(now.at("id").as_string(), "");
  EXPECT_EQ(dtrun({"signal", std::to_string(job.pid()), "0", "--signal=KILL"}).exit_code, 0);
  EXPECT_NE(job.finish().exit_code, 0);
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
