// Several programs in one job: dtrun [options] ./a : [options] ./b.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "dtrun/base/json.h"
#include "launcher/launcher_job.h"
#include "launcher/living_processes.h"
#include "launcher/plan_here.h"
#include "support/own_port.h"
#include "support/thrown_error.h"

namespace dtrun::launcher {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;
using testing_support::Command;
using testing_support::CommandResult;
using testing_support::error_of;

using Words = std::vector<std::string>;

base::Environment with_path() {
  base::Environment environment;
  environment.set("PATH", "/usr/bin:/bin");
  environment.set("HERE", "5");
  return environment;
}

std::vector<ProgramOptions> programs_of(const std::string& name, const Words& words) {
  return parse_options(name, words, with_path()).programs;
}

std::string refusal_of(const Words& words) {
  const auto error = error_of([&] { parse_options("dtrun", words, with_path()); });
  return error ? error->what() : "accepted";
}

TEST(ProgramOptionsTest, EachProgramHasItsRanksItsVariablesAndItsFolder) {
  const auto programs = programs_of(
      "dtrun", {"--nproc_per_node=2", "a", "x", ":",  //
                "--nproc-per=cpu", "-x", "HERE", "-x", "N=a b", "--wdir=/usr", "b", ":", "c", "y"});
  ASSERT_EQ(programs.size(), 3u);
  EXPECT_EQ(programs[0].local_ranks, "2");
  EXPECT_THAT(programs[0].words, ElementsAre("a", "x"));
  EXPECT_THAT(programs[0].variables, IsEmpty());
  EXPECT_EQ(programs[1].local_ranks, "cpu");
  EXPECT_THAT(programs[1].words, ElementsAre("b"));
  EXPECT_THAT(programs[1].variables, ElementsAre(Pair("HERE", "5"), Pair("N", "a b")));
  EXPECT_EQ(programs[1].folder, "/usr");
  EXPECT_EQ(programs[2].local_ranks, "1");
  EXPECT_THAT(programs[2].words, ElementsAre("c", "y"));
}

TEST(ProgramOptionsTest, AColonIsAnArgumentAfterTheEndOfOptionsAndUnderTorchrunsName) {
  for (const auto& programs :
       {programs_of("dtrun", {"--", "a", ":", "b"}), programs_of("torchrun", {"a", ":", "b"})}) {
    ASSERT_EQ(programs.size(), 1u);
    EXPECT_THAT(programs[0].words, ElementsAre("a", ":", "b"));
  }
  const auto programs = programs_of("dtrun", {"a", "::", ":", "-x", "N=1", "--", "b", ":", "c"});
  ASSERT_EQ(programs.size(), 2u);
  EXPECT_THAT(programs[0].words, ElementsAre("a", "::"));
  EXPECT_THAT(programs[1].words, ElementsAre("b", ":", "c"));
}

TEST(ProgramOptionsTest, AnotherDtrunReadsTheSameFromTheirWords) {
  const Words line = {"a",  ":", "-x", "HERE", "--nproc_per_node=3", "--wdir=there", "b", ":",
                      "--", "c", ":",  "d"};
  const auto programs = programs_of("dtrun", line);
  const Words words = words_of(programs);
  const auto again = parse_options("dtrun", words, {}).programs;
  ASSERT_EQ(again.size(), 3u);
  EXPECT_EQ(words_of(again), words);
  EXPECT_EQ(again[1].variables.at("HERE"), "5");
  EXPECT_THAT(again[2].words, ElementsAre("c", ":", "d"));
}

TEST(ProgramOptionsTest, WhatIsWrongIsNamed) {
  EXPECT_THAT(refusal_of({":", "b"}), HasSubstr("no program was named"));
  for (const Words& missing :
       {Words{"a", ":"}, Words{"a", ":", ":", "b"}, Words{"a", ":", "-x", "N=1"}})
    EXPECT_THAT(refusal_of(missing),
                AllOf(HasSubstr("no program stands after a ':'"), HasSubstr("after --")));
  EXPECT_THAT(refusal_of({"a", ":", "--max-restarts=2", "b"}),
              AllOf(HasSubstr("--max-restarts stands after a ':'"), HasSubstr("before the first")));
  EXPECT_THAT(refusal_of({"a", ":", "-v", "b"}), HasSubstr("-v stands after a ':'"));
  EXPECT_THAT(refusal_of({"a", ":", "--nproc_per_node=x", "b"}),
              HasSubstr("--nproc_per_node=x must be a number"));
  EXPECT_THAT(refusal_of({"a", ":", "--nproc_per_nod", "b"}), Not(HasSubstr("accepted")));
  EXPECT_THAT(refusal_of({"a", ":", "-x", "ABSENT", "b"}), HasSubstr("no such variable here"));
  base::Environment of_mpirun = with_path();
  for (const char* name : {"RANK", "LOCAL_RANK"})
    of_mpirun.set(std::string("OMPI_COMM_WORLD_") + name, "0");
  for (const char* name : {"SIZE", "LOCAL_SIZE"})
    of_mpirun.set(std::string("OMPI_COMM_WORLD_") + name, "1");
  const auto adopted = error_of([&] {
    parse_options("dtrun", {"--adopt", "a", ":", "b"}, of_mpirun);
  });
  ASSERT_TRUE(adopted);
  EXPECT_THAT(adopted->what(), HasSubstr("--adopt starts one rank, and 2 programs are named"));
  const auto too_many = error_of([] {
    plan_here({"--nproc_per_node=65536", "true", ":", "--nproc_per_node=1", "true"}, with_path());
  });
  ASSERT_TRUE(too_many);
  EXPECT_THAT(too_many->what(), HasSubstr("65537 ranks"));
}

TEST(ProgramOptionsTest, ThePlanKnowsWhichProgramARankRuns) {
  const LaunchPlan plan = plan_here(
      {"--nproc_per_node=2", "true", ":", "--nproc_per_node=2", "echo", ":", "sh"}, with_path());
  EXPECT_EQ(plan.local_ranks, 5);
  Words names;
  for (int rank = -1; rank <= 5; ++rank) names.push_back(plan.program_name(rank));
  const std::string all = "true : echo : sh";
  EXPECT_THAT(names, ElementsAre(all, "true", "true", "echo", "echo", "sh", all));
}

// What a rank of these programs prints.
const std::string kPlace =
    "echo $0 $RANK $LOCAL_RANK of $WORLD_SIZE $LOCAL_WORLD_SIZE app $DTRUN_APP_NUM in ${PWD##*/} "
    "$N";

TEST(ProgramsTest, TheirRanksAreOneWorldInTheOrderOfThePrograms) {
  LauncherJob job;
  job.options().folder = job.folder();
  for (const char* folder : {"/first", "/first/own"})
    ASSERT_EQ(::mkdir((job.folder() + folder).c_str(), 0700), 0);
  const CommandResult result = job.run({"--nproc_per_node=2",
                                        "--wdir=first",
                                        "-x",
                                        "N=all",
                                        "sh",
                                        "-c",
                                        kPlace,
                                        "a",  //
                                        ":",
                                        "--nproc_per_node=1",
                                        "--wdir=own",
                                        "sh",
                                        "-c",
                                        kPlace,
                                        "b",  //
                                        ":",
                                        "-x",
                                        "N=mine",
                                        "sh",
                                        "-c",
                                        kPlace,
                                        "c"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.sorted_lines(),
              ElementsAre("a 0 0 of 4 4 app 0 in first all", "a 1 1 of 4 4 app 0 in first all",
                          "b 2 2 of 4 4 app 1 in own all", "c 3 3 of 4 4 app 2 in first mine"));
}

TEST(ProgramsTest, AProgramAloneHasNoNumberEvenInsideAnotherJob) {
  LauncherJob job;
  const CommandResult result = job.run({"sh", "-c", "exec \"$@\"", "sh", DTRUN_BINARY, "sh", "-c",
                                        "echo inner ${DTRUN_APP_NUM-none}", ":", "true"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(result.out, "inner none\n");
}

TEST(ProgramsTest, TwoProgramsMeetInDtrunsLibrary) {
  LauncherJob job;
  const std::string copy = job.folder() + "/other";
  std::filesystem::copy_file(DTRUN_WORKERS "/hello", copy);
  const CommandResult result = job.run({"--nproc_per_node=2", DTRUN_WORKERS "/hello", ":", copy});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.sorted_lines(), ElementsAre("hello from rank 0 (local rank 0) of 3",
                                                 "hello from rank 1 (local rank 1) of 3",
                                                 "hello from rank 2 (local rank 2) of 3"));
}

// The relative path of a program begins where it works.
TEST(ProgramsTest, AProgramIsFoundFromItsFolderAndAFolderThatIsNotThereIsAnError) {
  LauncherJob job;
  job.options().folder = job.folder();
  ASSERT_EQ(::mkdir((job.folder() + "/tools").c_str(), 0700), 0);
  std::filesystem::copy_file("/bin/pwd", job.folder() + "/tools/where");
  const CommandResult found = job.run({"true", ":", "--wdir=tools", "./where"});
  EXPECT_EQ(found.exit_code, 0) << found.describe();
  EXPECT_THAT(found.out, HasSubstr("/tools\n"));
  const CommandResult absent = job.run({"true", ":", "--wdir=nowhere", "./where"});
  EXPECT_EQ(absent.exit_code, 64) << absent.describe();
  EXPECT_THAT(absent.err, HasSubstr("cannot work in the folder nowhere"));
  const CommandResult no_program = job.run({"true", ":", "./absent"});
  EXPECT_EQ(no_program.exit_code, 127) << no_program.describe();
  EXPECT_THAT(no_program.err, HasSubstr("there is no program './absent'"));
}

TEST(ProgramsTest, RestartAndFailureNameTheProgramThatFailed) {
  LauncherJob job;
  const Words line = {"--max_restarts=1", "sleep", "100", ":", "sh", "-c", "exit 3"};
  const CommandResult result = job.run(line);
  EXPECT_EQ(result.exit_code, 3) << result.describe();
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("restart 1 of 1 after this: rank 1 on node 0 ("),
                    HasSubstr("), which runs sh, failed: exit code 3"), HasSubstr("\nsh FAILED\n"),
                    HasSubstr("(local_rank: 1)\n  program   : sh\n"),
                    HasSubstr("(local_rank: 0)\n  program   : sleep\n")));
  Words json = line;
  json.insert(json.begin(), "--log-format=json");
  const CommandResult objects = job.run(json);
  const auto at = objects.err.rfind('\n', objects.err.find("\"root_cause\"")) + 1;
  const auto object =
      base::parse_json(objects.err.substr(at, objects.err.find('\n', at) - at), "the failure");
  EXPECT_EQ(object.at("root_cause").at("program"), "sh") << objects.describe();
  EXPECT_EQ(object.at("failures").at(1).at("program"), "sleep");
  EXPECT_THAT(job.left_behind(), IsEmpty());
}

TEST(ProgramsTest, AnEndOfOneProgramEndsTheOther) {
  LauncherJob job;
  const std::string token = unique_token();
  const CommandResult result = job.run({"--nproc_per_node=2", "sh", "-c", "sleep 100 & wait", token,
                                        ":", "sh", "-c", "kill -KILL $$", token});
  EXPECT_EQ(result.exit_code, 128 + SIGKILL) << result.describe();
  EXPECT_THAT(processes_with(token), IsEmpty());
}

TEST(ProgramsTest, EachNodeRunsEachProgram) {
  LauncherJob job;
  const testing_support::OwnPort port;
  const auto start = [&](const std::string& node) {
    return job.start({"--nnodes=2", "--node_rank=" + node, "--master_addr=127.0.0.1",
                      "--master_port=" + port.text(), "--nproc_per_node=2", "sh", "-c", kPlace, "a",
                      ":", "sh", "-c", kPlace, "b"});
  };
  Command second = start("1"), first = start("0");
  const CommandResult of_first = first.finish(), of_second = second.finish();
  EXPECT_EQ(of_first.exit_code, 0) << of_first.describe();
  EXPECT_EQ(of_second.exit_code, 0) << of_second.describe();
  const std::string here = " in " + std::filesystem::current_path().filename().string();
  EXPECT_THAT(of_first.sorted_lines(),
              ElementsAre("a 0 0 of 6 3 app 0" + here, "a 1 1 of 6 3 app 0" + here,
                          "b 2 2 of 6 3 app 1" + here));
  EXPECT_THAT(of_second.sorted_lines(),
              ElementsAre("a 3 0 of 6 3 app 0" + here, "a 4 1 of 6 3 app 0" + here,
                          "b 5 2 of 6 3 app 1" + here));
}

TEST(ProgramsTest, TheDryRunTellsEachProgramsRanksAndVariables) {
  const CommandResult result = run_dtrun({"--dry-run=json", "--nproc_per_node=2", "true", ":", "-x",
                                          "N=5", "--wdir=/usr", "echo", "b"});
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  const auto plan = base::parse_json(result.out, "the plan");
  EXPECT_EQ(plan.at("ranks_here").as_int64(), 3);
  EXPECT_EQ(plan.at("program"), "/usr/bin/true : /usr/bin/echo");
  const auto& rank = [&](std::size_t local_rank) -> const auto& {
    return plan.at("ranks").at(local_rank).as_object();
  };
  EXPECT_TRUE(rank(1).at("folder").is_null());
  EXPECT_EQ(rank(1).at("environment").at("DTRUN_APP_NUM"), "0");
  EXPECT_EQ(rank(2).at("folder"), "/usr");
  EXPECT_EQ(rank(2).at("environment").at("N"), "5");
  EXPECT_FALSE(rank(1).at("environment").as_object().contains("N"));
  const CommandResult table =
      run_dtrun({"--dry-run", "--nproc_per_node=2", "true", ":", "-x", "N=5", "echo", "b"});
  EXPECT_THAT(table.out, AllOf(HasSubstr("  N=(unset) | (unset) | 5\n"),
                               HasSubstr("  DTRUN_APP_NUM=0 | 0 | 1\n"), HasSubstr("  echo b\n")));
}

}  // namespace
}  // namespace dtrun::launcher
