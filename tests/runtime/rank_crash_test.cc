// Ranks that crash: the failure table shows their stacks, and they end as they would have ended.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <boost/json/parse.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "launcher/launcher_job.h"

namespace dtrun::runtime {
namespace {

using launcher::LauncherJob;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing_support::CommandResult;

const std::string kCrash = DTRUN_BIN "/crash";

CommandResult run_crash(LauncherJob& job, const std::string& how) {
  return job.run({"--nproc_per_node=2", kCrash, how});
}

CommandResult run_crash(const std::string& how) {
  LauncherJob job;
  CommandResult result = run_crash(job, how);
  EXPECT_THAT(job.left_behind(), testing::IsEmpty());
  return result;
}

TEST(RankCrashTest, TheTableShowsTheStackAndWhatWasWrong) {
  const CommandResult result = run_crash("segv");
  EXPECT_EQ(result.exit_code, 128 + SIGSEGV) << result.describe();
  EXPECT_THAT(result.err,
              ContainsRegex("traceback : Signal 11 \\(SIGSEGV\\) received by PID [0-9]+: "
                            "nothing is mapped at address 0x0\n"
                            "  #0 [^\n]*write_to_nothing[^\n]* at crash.cc:[0-9]+\n"
                            "  #1 [^\n]*crash\\([^\n]* at crash.cc:[0-9]+\n"
                            "  #2 main at crash.cc:[0-9]+\n"));
  EXPECT_THAT(result.err, ContainsRegex("The last operations of rank 0:\n  \\| barrier #1 of group "
                                        "'world'[^\n]* at crash.cc:[0-9]+ ended [^\n]* before\n"));
}

TEST(RankCrashTest, EverySignalOfACrashIsToldOf) {
  EXPECT_THAT(run_crash("divide").err, AllOf(HasSubstr("an integer was divided by zero\n"),
                                             ContainsRegex("#0 [^\n]*divide_by")));
  EXPECT_THAT(run_crash("abort").err,
              AllOf(ContainsRegex("Signal 6 \\(SIGABRT\\) received by PID [0-9]+: it aborted\n"),
                    ContainsRegex("#[0-9]+ [^\n]*crash\\([^\n]* at crash.cc:")));
  EXPECT_THAT(run_crash("kill").err, ContainsRegex("#[0-9]+ main at crash.cc:"));
}

TEST(RankCrashTest, AnOverflowOfTheStackIsCalledSo) {
  const CommandResult result = run_crash("overflow");
  EXPECT_EQ(result.exit_code, 128 + SIGSEGV) << result.describe();
  EXPECT_THAT(result.err, testing::ContainsRegex("traceback : Signal 11 [^\n]*\n  #0"));
  EXPECT_THAT(result.err, AllOf(HasSubstr(": the stack has overflowed, at address 0x"),
                                ContainsRegex("#[01]-#[0-9]+ [^\n]*overflow_the_stack")));
}

TEST(RankCrashTest, AThreadIsShown) {
  EXPECT_THAT(run_crash("thread").err, ContainsRegex("#0 [^\n]*write_to_nothing"));
  // Of two at once, the first.
  const CommandResult both = run_crash("all");
  EXPECT_EQ(both.exit_code, 128 + SIGSEGV) << both.describe();
  EXPECT_THAT(both.err, ContainsRegex("#0 [^\n]*write_to_nothing"));
}

TEST(RankCrashTest, WhatAHandlerRepairsIsNoCrash) {
  LauncherJob job;
  const CommandResult result =
      job.run({"--nproc_per_node=2", "--log_dir=" + job.folder(), kCrash, "repair"});
  EXPECT_EQ(result.exit_code, 3) << result.describe();
  EXPECT_THAT(result.err, AllOf(Not(HasSubstr("SIGSEGV")), Not(HasSubstr("#0"))));
}

TEST(RankCrashTest, AfterAHandlerThatRepairsNothingTheCrashIsTold) {
  const CommandResult result = run_crash("complain");
  EXPECT_EQ(result.exit_code, 128 + SIGSEGV) << result.describe();
  EXPECT_THAT(result.err, AllOf(HasSubstr("this program crashes\n"),
                                ContainsRegex("  #0 [^\n]*write_to_nothing")));
  const CommandResult aborted = run_crash("complain_of_abort");
  EXPECT_EQ(aborted.exit_code, 128 + SIGABRT) << aborted.describe();
  EXPECT_THAT(aborted.err, AllOf(HasSubstr("this program crashes\n"),
                                 ContainsRegex("#[0-9]+ [^\n]*crash\\([^\n]* (at|in) crash")));
}

TEST(RankCrashTest, ACallOfNoFunctionShowsWhoCalled) {
  const CommandResult result = run_crash("call");
  EXPECT_EQ(result.exit_code, 128 + SIGSEGV) << result.describe();
  EXPECT_THAT(result.err, ContainsRegex("  #0 0x0\n  #1 [^\n]*call\\("));
}

TEST(RankCrashTest, TheCrashOfAChildIsNotTheRanks) {
  const CommandResult result = run_crash("child");
  EXPECT_EQ(result.exit_code, 4) << result.describe();
  EXPECT_THAT(result.err, Not(HasSubstr("write_to_nothing")));
}

TEST(RankCrashTest, WithoutAProgramThatFindsLinesTheFunctionsAreNamed) {
  LauncherJob job;
  job.options().environment["PATH"] = job.folder();
  const CommandResult result = run_crash(job, "segv");
  EXPECT_THAT(result.err, AllOf(ContainsRegex("  #0 [^\n]*write_to_nothing[^\n]* in crash\n"),
                                HasSubstr(" main in crash\n")))
      << result.describe();
}

TEST(RankCrashTest, AProgramThatFindsNoLinesInTimeHoldsUpNothing) {
  LauncherJob job;
  const std::string program = job.folder() + "/addr2line";
  std::ofstream(program) << "#!/bin/sh\nexec /bin/sleep 1000\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  job.options().environment["PATH"] = job.folder();
  const CommandResult result = run_crash(job, "segv");
  EXPECT_THAT(result.err, ContainsRegex("#0 [^\n]*write_to_nothing[^\n]* in crash\n"))
      << result.describe();
}

TEST(RankCrashTest, TheReportInJsonHasTheSame) {
  LauncherJob job;
  const CommandResult result = job.run({"--nproc_per_node=2", "--log_format=json", kCrash, "segv"});
  for (std::size_t begin = 0; begin < result.err.size();) {
    const auto end = result.err.find('\n', begin);
    const boost::json::object line =
        boost::json::parse(result.err.substr(begin, end - begin)).as_object();
    begin = end + 1;
    if (!line.contains("root_cause")) continue;
    const boost::json::object& root = line.at("root_cause").as_object();
    EXPECT_THAT(std::string(root.at("stack").as_array().at(0).as_string().c_str()),
                HasSubstr("write_to_nothing"));
    EXPECT_THAT(std::string(root.at("last_operations").as_array().at(0).as_string().c_str()),
                HasSubstr("barrier #1 of group 'world'"));
    EXPECT_TRUE(root.contains("core_file"));
    return;
  }
  FAIL() << result.describe();
}

TEST(RankCrashTest, TheCoreStaysTheSameAndItsPathIsShown) {
  std::ifstream setting("/proc/sys/kernel/core_pattern");
  std::string pattern;
  std::getline(setting, pattern);
  if (pattern != "core") GTEST_SKIP() << "kernel.core_pattern is " << pattern;
  LauncherJob job;
  job.options().folder = job.folder();
  const CommandResult result =
      job.run({"--nproc_per_node=2", "sh", "-c", "ulimit -c unlimited; exec " + kCrash + " segv"});
  EXPECT_THAT(result.err, ContainsRegex("the core of rank 0: [^\n]*" + job.folder() + "/core"));
  const CommandResult shown = testing_support::run_command(
      {"sh", "-c", "gdb -nx -batch -ex bt " + kCrash + " " + job.folder() + "/core* 2>&1"});
  if (shown.exit_code == 127) GTEST_SKIP() << "no gdb is here";
  EXPECT_THAT(shown.out, AllOf(HasSubstr("terminated with signal SIGSEGV"),
                               ContainsRegex("#0 [^\n]*write_to_nothing")));
}

TEST(RankCrashTest, ARestartTellsOfTheCrashBefore) {
  LauncherJob job;
  const CommandResult result = job.run({"--nproc_per_node=2", "--max_restarts=1", kCrash, "segv"});
  EXPECT_EQ(result.exit_code, 128 + SIGSEGV) << result.describe();
  EXPECT_THAT(result.err,
              ContainsRegex("failed in round 0: [^\n]*nothing is mapped at address 0x0"));
}

}  // namespace
}  // namespace dtrun::runtime
