// What ranks are started with, and with what dtrun itself ends when all is well or nothing could be
// started.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <set>

#include "cpus/binding.h"
#include "dtrun/base/cpu_list.h"
#include "dtrun/base/cpu_quota.h"
#include "dtrun/base/socket.h"
#include "launcher/launcher_job.h"

namespace dtrun::launcher {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing_support::CommandResult;

TEST(StartTest, EveryRankGetsItsPlaceInTheWorld) {
  const CommandResult result =
      run_dtrun({"--nproc_per_node=3", "--role=trainer", "--rdzv_id=job7", "sh", "-c",
                 "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK "
                 "$GROUP_WORLD_SIZE $ROLE_RANK $ROLE_NAME $ROLE_WORLD_SIZE $MASTER_ADDR "
                 "$TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS $TORCHELASTIC_RUN_ID "
                 "$TORCHELASTIC_USE_AGENT_STORE $TORCH_NCCL_ASYNC_ERROR_HANDLING"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.sorted_lines(),
              ElementsAre("0 0 3 3 0 1 0 trainer 3 127.0.0.1 0 0 job7 True 1",
                          "1 1 3 3 0 1 1 trainer 3 127.0.0.1 0 0 job7 True 1",
                          "2 2 3 3 0 1 2 trainer 3 127.0.0.1 0 0 job7 True 1"));
}

// Free also for who asks without SO_REUSEADDR.
TEST(StartTest, RankZeroServesTheStoreWhereTorchrunIsToldNotToShareIts) {
  testing_support::CommandOptions unshared;
  unshared.environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1";
  const std::vector<std::string> bind = {
      "python3", "-c",
      "import os, socket\n"
      "assert os.environ['TORCHELASTIC_USE_AGENT_STORE'] == 'False'\n"
      "s = socket.socket()\n"
      "if os.environ['RANK'] == '0': s.bind(('', int(os.environ['MASTER_PORT'])))\n"
      "print('fine', os.environ['MASTER_ADDR'])"};
  const std::vector<std::vector<std::string>> ways = {
      {}, {"--standalone"}, {"--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"}};
  for (std::vector<std::string> arguments : ways) {
    arguments.emplace_back("--nproc_per_node=2");
    arguments.insert(arguments.end(), bind.begin(), bind.end());
    arguments.insert(arguments.begin(), DTRUN_BINARY);
    const CommandResult result = testing_support::run_command(arguments, unshared);
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_THAT(result.out, HasSubstr("fine "));
  }
  const CommandResult named = testing_support::run_command(
      {DTRUN_BINARY, "--master_port=0", "sh", "-c", "echo $TORCHELASTIC_USE_AGENT_STORE"},
      unshared);
  EXPECT_EQ(named.out, "True\n");
  EXPECT_THAT(named.err, HasSubstr("TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 is without effect"));
}

TEST(StartTest, RanksAreBoundToCoresOfTheirOwn) {
  const std::vector<int> cpus = base::allowed_cpus();
  if (cpus.size() < 2) GTEST_SKIP() << "one CPU is too few to bind two ranks apart";
  const CommandResult result =
      run_dtrun({"--nproc_per_node=2", "--numa-binding=exclusive", "--omp-threads=share", "sh",
                 "-c", "sed -n 's/^Cpus_allowed_list:.//p' /proc/self/status"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  const std::vector<std::string> lists = result.sorted_lines();
  ASSERT_EQ(lists.size(), 2u) << result.describe();
  std::vector<int> both = base::parse_cpu_list(lists[0]);
  for (const int cpu : base::parse_cpu_list(lists[1])) both.push_back(cpu);
  EXPECT_THAT(both, testing::IsSubsetOf(cpus));
  EXPECT_EQ(std::set<int>(both.begin(), both.end()).size(), both.size()) << result.describe();
}

TEST(StartTest, OpenMpGetsTheThreadsAskedFor) {
  const std::vector<std::string> show = {"sh", "-c", "echo $OMP_NUM_THREADS"};
  const auto shown = [&](std::vector<std::string> options) {
    options.insert(options.end(), show.begin(), show.end());
    return run_dtrun(options).sorted_lines();
  };
  EXPECT_THAT(shown({"--nproc_per_node=2"}), ElementsAre("1", "1"));
  EXPECT_THAT(shown({"--nproc_per_node=2", "--omp-threads=5"}), ElementsAre("5", "5"));
  const int cpus = static_cast<int>(base::allowed_cpus().size());
  const int cores = launcher::cores_of(launcher::read_machine(base::allowed_cpus(), {}), {});
  EXPECT_LE(cores, cpus);
  EXPECT_THAT(shown({"--omp-threads=share"}), ElementsAre(std::to_string(cores)));
}

TEST(StartTest, RanksShareThePortOfTheStoreAndEachHasAnErrorFileAndTheJobPage) {
  const CommandResult result =
      run_dtrun({"--nproc_per_node=2", "sh", "-c",
                 "echo $MASTER_PORT; readlink /proc/self/fd/$DTRUN_JOB_PAGE_FD; "
                 "echo $TORCHELASTIC_ERROR_FILE"});
  const std::vector<std::string> lines = result.sorted_lines();
  ASSERT_EQ(lines.size(), 6u) << result.describe();
  EXPECT_THAT(lines[0], HasSubstr("memfd:"));
  EXPECT_EQ(lines[0], lines[1]);
  EXPECT_NE(lines[2], lines[3]);  // the files
  EXPECT_EQ(lines[4], lines[5]);
  EXPECT_GT(std::stoi(lines[4]), 1023);
}

TEST(StartTest, WhatTheEnvironmentSaysOfAnotherJobDoesNotReachTheRanks) {
  LauncherJob job;
  job.options().environment["RANK"] = "77";
  job.options().environment["GROUP_RANK"] = "77";
  job.options().environment["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "3";
  job.options().environment["KEPT"] = "kept";
  const CommandResult result =
      job.run({"sh", "-c",
               "env | grep -cE '^(RANK|GROUP_RANK)='; echo $RANK $GROUP_RANK $KEPT; "
               "echo $TORCH_NCCL_ASYNC_ERROR_HANDLING"});
  EXPECT_EQ(result.out, "2\n0 0 kept\n3\n");
}

TEST(StartTest, EverythingAfterTheProgramGoesToItVerbatim) {
  const CommandResult result =
      run_dtrun({"--nproc-per-node", "1", "printf", "<%s>", "--nproc_per_node=9", "-v", "--help",
                 "--", "a b", "", "$local_rank", "--no"});
  EXPECT_EQ(result.out, "<--nproc_per_node=9><-v><--help><--><a b><><$local_rank><--no>");
  EXPECT_EQ(run_dtrun({"--", "printf", "<%s>", "--", "x"}).out, "<--><x>");
}

TEST(StartTest, DashesAndUnderscoresAndUniquePrefixesAreTheSameOption) {
  for (const char* option :
       {"--nproc-per-node=2", "--nproc_per_node=2", "--nproc-per_node=2", "--nproc=2", "--np=2"})
    EXPECT_EQ(run_dtrun({option, "echo", "x"}).out, "x\nx\n") << option;
}

TEST(StartTest, VariablesGiveDefaultsPetBeforeOursAndTheCommandLineBeforeBoth) {
  LauncherJob job;
  job.options().environment["DTRUN_NPROC_PER_NODE"] = "3";
  EXPECT_EQ(job.run({"echo", "x"}).out, "x\nx\nx\n");
  job.options().environment["PET_NPROC_PER_NODE"] = "2";
  EXPECT_EQ(job.run({"echo", "x"}).out, "x\nx\n");
  EXPECT_EQ(job.run({"--nproc_per_node=1", "echo", "x"}).out, "x\n");
  job.options().environment["PET_STANDALONE"] = "0";
  EXPECT_EQ(job.run({"echo", "x"}).exit_code, 0);
}

TEST(StartTest, OmpNumThreadsIsOneUnlessItIsSetOrThereIsOneRank) {
  LauncherJob job;
  job.options().environment["OMP_NUM_THREADS"] = std::nullopt;
  const std::vector<std::string> ranks = {"--nproc_per_node=2", "sh", "-c",
                                          "echo $OMP_NUM_THREADS"};
  CommandResult result = job.run(ranks);
  EXPECT_EQ(result.out, "1\n1\n");
  EXPECT_THAT(result.err, IsEmpty());
  std::vector<std::string> verbose = ranks;
  verbose.insert(verbose.begin(), "-v");
  EXPECT_THAT(job.run(verbose).err, HasSubstr("OMP_NUM_THREADS=1 for each rank"));
  // Under torchrun's name its own words are looked for.
  const std::string torchrun = job.folder() + "/torchrun";
  ASSERT_EQ(::symlink(DTRUN_BINARY, torchrun.c_str()), 0);
  std::vector<std::string> as_torchrun = ranks;
  as_torchrun.insert(as_torchrun.begin(), {torchrun, "--no-python"});
  result = testing_support::run_command(as_torchrun, job.options());
  EXPECT_EQ(result.out, "1\n1\n");
  EXPECT_THAT(result.err,
              HasSubstr("Setting OMP_NUM_THREADS environment variable for each process to be 1"));
  result = job.run({"sh", "-c", "echo .$OMP_NUM_THREADS"});
  EXPECT_EQ(result.out, ".\n");
  EXPECT_THAT(result.err, IsEmpty());
  job.options().environment["OMP_NUM_THREADS"] = "5";
  result = job.run({"--nproc_per_node=2", "sh", "-c", "echo $OMP_NUM_THREADS"});
  EXPECT_EQ(result.out, "5\n5\n");
  EXPECT_THAT(result.err, IsEmpty());
}

TEST(StartTest, CpuIsTheNumberOfCpusAndAutoToWhereThereIsNoGpu) {
  LauncherJob job;
  job.options().environment["CUDA_VISIBLE_DEVICES"] = "";
  const CommandResult cpus = job.run({"--nproc_per_node=cpu", "sh", "-c", "echo $WORLD_SIZE"});
  EXPECT_EQ(cpus.exit_code, 0);
  const std::string count = cpus.out.substr(0, cpus.out.find('\n'));
  EXPECT_EQ(std::stol(count), std::stol(testing_support::run_command({"nproc"}).out));
  EXPECT_EQ(job.run({"--nproc_per_node=auto", "sh", "-c", "echo $WORLD_SIZE"}).out, cpus.out);
}

TEST(StartTest, PythonProgramsAreRunByTheInterpreterUnbuffered) {
  LauncherJob job;
  std::ofstream(job.folder() + "/script.py")
      << "import sys\nprint(sys.argv[1:], sys.stdout.write_through)\n";
  EXPECT_EQ(job.run({job.folder() + "/script.py", "-u", "--x"}).out, "['-u', '--x'] True\n");
  job.options().environment["PYTHONPATH"] = job.folder();
  EXPECT_EQ(job.run({"-m", "script", "a"}).out, "['a'] True\n");
  std::ofstream(job.folder() + "/other") << "#!/bin/sh\necho other \"$@\"\n";
  ::chmod((job.folder() + "/other").c_str(), 0755);
  job.options().environment["PYTHON_EXEC"] = job.folder() + "/other";
  EXPECT_EQ(job.run({"script.py", "x"}).out, "other -u script.py x\n");
  EXPECT_EQ(job.run({"--no-python", "script.py"}).exit_code, 127);
}

TEST(StartTest, UnderTorchrunsNameAFileThatCannotBeExecutedIsAPythonProgram) {
  LauncherJob job;
  const std::string script = job.folder() + "/script", torchrun = job.folder() + "/torchrun";
  std::ofstream(script) << "import sys\nprint(sys.argv[1:])\n";
  ASSERT_EQ(::symlink(DTRUN_BINARY, torchrun.c_str()), 0);
  const auto run = [&](std::vector<std::string> words) {
    return testing_support::run_command(words, job.options());
  };
  EXPECT_EQ(run({torchrun, script, "--x"}).out, "['--x']\n");
  EXPECT_EQ(run({torchrun, "--no-python", script}).exit_code, 1);
  EXPECT_EQ(run({DTRUN_BINARY, script}).exit_code, 126);
  ASSERT_EQ(::chmod(script.c_str(), 0755), 0);
  std::ofstream(script) << "#!/bin/sh\necho executed\n";
  EXPECT_EQ(run({torchrun, script}).out, "executed\n");
}

TEST(StartTest, RunPathRunsPythonWhateverTheFileIsCalled) {
  LauncherJob job;
  std::ofstream(job.folder() + "/script") << "import sys\nprint(__name__, sys.argv[1:])\n";
  EXPECT_EQ(job.run({"--run-path", "--no-python", job.folder() + "/script", "-m"}).out,
            "__main__ ['-m']\n");
}

TEST(StartTest, AVirtualLocalRankIsZeroAndSeesItsOwnDevice) {
  LauncherJob job;
  job.options().environment["CUDA_VISIBLE_DEVICES"] = "5,7,9";
  const std::vector<std::string> words = {
      "--nproc_per_node=2", "--virtual-local-rank", "sh", "-c",
      "echo $RANK $LOCAL_RANK $LOCAL_WORLD_SIZE $CUDA_VISIBLE_DEVICES ${local_rank}; "
      "env | grep -c ^CUDA_VISIBLE_DEVICES="};
  const CommandResult result = job.run(words);
  EXPECT_THAT(result.sorted_lines(), ElementsAre("0 0 2 5 0", "1", "1", "1 0 2 7 1"))
      << result.describe();
  job.options().environment["CUDA_VISIBLE_DEVICES"] = "5";
  EXPECT_EQ(job.run(words).exit_code, 64);
}

TEST(StartTest, ConsoleEventsTellHowEachRankEnded) {
  const CommandResult result = run_dtrun(
      {"--nproc_per_node=2", "--event-log-handler=console", "sh", "-c", "exit $((RANK * 3))"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("\"name\":\"torchelastic.worker.status.FAILED\""));
}

TEST(StartTest, RanksReadNothingAndHaveOnlyTheirDescriptors) {
  LauncherJob job;
  job.options().environment["PMI_FD"] = "9";
  const CommandResult result =
      job.run({"sh", "-c",
               "cat; echo ${PMI_FD-}; for i in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do "
               "[ -e /proc/$$/fd/$i ] && [ $i != $DTRUN_JOB_PAGE_FD ] && echo $i; done"});
  EXPECT_EQ(result.out, "\n0\n1\n2\n") << result.describe();
}

/// A few CPUs, however many the machine has. Empty: a quota leaves less than one.
std::vector<int> few_cpus() {
  std::vector<int> cpus = base::allowed_cpus();
  const std::optional<base::CpuQuota> quota = base::cpu_quota();
  const double most = quota ? std::min(quota->cpus, 2.0) : 2.0;
  cpus.resize(std::min(cpus.size(), static_cast<std::size_t>(most)));
  return cpus;
}

/// dtrun on those CPUs. @param words its options, and what a rank runs, as a shell reads them
std::string command_on(const std::vector<int>& cpus, std::size_t ranks, const std::string& words) {
  return fmt::format("OMP_NUM_THREADS=1 exec taskset -c {} " DTRUN_BINARY " --nproc_per_node={} {}",
                     fmt::join(cpus, ","), ranks, words);
}

/// Of each rank, whether it has a session of its own, where the kernel says that of autogroups.
std::string sessions_of_ranks(const std::string& enabled, const std::vector<int>& cpus,
                              std::size_t ranks) {
  return testing_support::run_command(
             {"unshare", "-m", "sh", "-c",
              "f=$(mktemp) && echo " + enabled +
                  " > $f && mount --bind $f /proc/sys/kernel/sched_autogroup_enabled && rm $f; " +
                  command_on(cpus, ranks,
                             "sh -c 'set -- $$ $(cat /proc/$$/stat); "
                             "[ $1 = $7 ] && echo own || echo shared'")})
      .out;
}

std::string repeated_line(std::size_t count, const std::string& line) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += line + "\n";
  return text;
}

bool may_show_another_proc_sys() {
  return testing_support::run_command({"unshare", "-m", "mount", "--bind", "/dev/null",
                                       "/proc/sys/kernel/sched_autogroup_enabled"})
             .exit_code == 0;
}

// Where the kernel shares the CPUs among sessions first, ranks in one would get a fourth together
// of what four hogs outside get.
TEST(StartTest, RanksHaveSessionsOfTheirOwnWhereTheKernelSharesTheCpusAmongSessions) {
  if (!may_show_another_proc_sys()) GTEST_SKIP() << "needs the right to mount over /proc/sys";
  const std::vector<int> cpus = few_cpus();
  if (cpus.empty()) GTEST_SKIP() << "needs a quota of at least one CPU";
  EXPECT_EQ(sessions_of_ranks("1", cpus, cpus.size()), repeated_line(cpus.size(), "own"));
  EXPECT_EQ(sessions_of_ranks("0", cpus, cpus.size()), repeated_line(cpus.size(), "shared"));
}

// One that waits for another yields to its session alone.
TEST(StartTest, RanksThatShareCpusHaveOneSession) {
  if (!may_show_another_proc_sys()) GTEST_SKIP() << "needs the right to mount over /proc/sys";
  const std::vector<int> cpus = few_cpus();
  if (cpus.empty()) GTEST_SKIP() << "needs a quota of at least one CPU";
  const std::size_t ranks = cpus.size() + 1;
  EXPECT_EQ(sessions_of_ranks("1", cpus, ranks), repeated_line(ranks, "shared"));
}

bool has_autogroups() {
  std::string enabled;
  std::getline(std::ifstream("/proc/sys/kernel/sched_autogroup_enabled"), enabled);
  return enabled == "1";
}

/// The nice value of the session that 4 ranks on one CPU have, from each, and what dtrun logs.
CommandResult nice_of_crowded_session(const std::string& wrapper) {
  const std::vector<int> cpus = {base::allowed_cpus().front()};
  return testing_support::run_command(
      {"sh", "-c",
       "export DTRUN_LOGS=+launcher; " + wrapper + "sh -c \"" +
           command_on(cpus, 4, "sh -c 'sed s/.*nice.// /proc/self/autogroup'") + "\""});
}

// 1.25 to the sixth is 3.8.
TEST(StartTest, TheSessionOfRanksThatShareCpusGetsAsMuchAsOneForEachWould) {
  if (!has_autogroups()) GTEST_SKIP() << "needs autogroups";
  const CommandResult lowered = testing_support::run_command(
      {"setsid", "--wait", "sh", "-c", "echo -1 > /proc/self/autogroup"});
  if (lowered.exit_code != 0)
    GTEST_SKIP() << "needs CAP_SYS_NICE or RLIMIT_NICE to lower a session's nice value";
  const CommandResult result = nice_of_crowded_session("");
  EXPECT_EQ(result.out, repeated_line(4, "-6")) << result.describe();
  EXPECT_THAT(result.err, Not(HasSubstr("keeps nice 0")));
}

TEST(StartTest, ASessionWhoseNiceValueMayNotBeLoweredKeepsItsOwnAndTheLogTellsWhy) {
  if (!has_autogroups()) GTEST_SKIP() << "needs autogroups";
  const CommandResult result = nice_of_crowded_session(
      ::geteuid() == 0
          ? "exec prlimit --nice=0 setpriv --bounding-set=-sys_nice --inh-caps=-sys_nice "
          : "exec prlimit --nice=0 ");
  EXPECT_EQ(result.out, repeated_line(4, "0")) << result.describe();
  EXPECT_THAT(result.err, AllOf(HasSubstr("keeps nice 0"), HasSubstr("refused nice -6"),
                                HasSubstr("CAP_SYS_NICE"), HasSubstr("RLIMIT_NICE")));
}

TEST(StartTest, StandardStreamsThatAreClosedDoNotBecomeSomethingElse) {
  for (const char* closed : {"<&-", ">&-", "2>&-", "<&- >&- 2>&-"}) {
    const CommandResult result = testing_support::run_command(
        {"sh", "-c", std::string(DTRUN_BINARY) + " --nproc_per_node=2 sh -c 'exit 5' " + closed});
    EXPECT_EQ(result.exit_code, 5) << closed << result.describe();
  }
}

TEST(StartTest, ManyRanksStartUnderASmallLimitOfOpenFilesWhenItMayBeRaised) {
  const CommandResult result =
      testing_support::run_command({"sh", "-c",
                                    "ulimit -S -n 64; export OMP_NUM_THREADS=1; exec " DTRUN_BINARY
                                    " --nproc_per_node=40 sh -c 'ulimit -n'"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.sorted_lines(), testing::Each("64"));
}

TEST(StartTest, WhereTheLimitOfOpenFilesIsTooSmallNothingIsStarted) {
  const CommandResult result =
      testing_support::run_command({"sh", "-c",
                                    "ulimit -n 40; export OMP_NUM_THREADS=1; exec " DTRUN_BINARY
                                    " --nproc_per_node=40 sh -c 'sleep 1000'"});
  EXPECT_EQ(result.exit_code, 71) << result.describe();
  EXPECT_THAT(result.err, AllOf(HasSubstr("40 ranks need 184 open files"),
                                HasSubstr("the limit is 40"), HasSubstr("ulimit -n")));
}

TEST(StartTest, VerboseTellsTheContainmentAndItsLimit) {
  const CommandResult result = run_dtrun({"-v", "true"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, AllOf(HasSubstr("containment"), HasSubstr("Its limit")));
}

TEST(StartTest, HelpListsWhatIsBuiltAndNothingElse) {
  const CommandResult result = run_dtrun({"--help"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("--nproc_per_node"), HasSubstr("--shutdown_timeout"),
                                HasSubstr("--rdzv_endpoint"), HasSubstr("--tee")));
  EXPECT_THAT(run_dtrun({"--version"}).out, testing::StartsWith("dtrun "));
}

TEST(StartTest, TheLocalRankIsPassedWhereTorchDistributedLaunchPassesIt) {
  LauncherJob job;
  const std::string link = job.folder() + "/torch.distributed.launch",
                    same = job.folder() + "/torchrun";
  ASSERT_EQ(::symlink(DTRUN_BINARY, link.c_str()), 0);
  ASSERT_EQ(::symlink(DTRUN_BINARY, same.c_str()), 0);
  const auto lines = [&](std::vector<std::string> command) {
    for (const char* word : {"echo", "x", "${local_rank}/$LOCAL_RANK"}) command.emplace_back(word);
    const CommandResult result = testing_support::run_command(command, job.options());
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    return result.sorted_lines();
  };
  const std::string nproc = "--nproc_per_node=2";
  const auto passed =
      ElementsAre("--local-rank=0 x 0/$LOCAL_RANK", "--local-rank=1 x 1/$LOCAL_RANK");
  const auto not_passed = ElementsAre("x 0/$LOCAL_RANK", "x 1/$LOCAL_RANK");
  EXPECT_THAT(lines({link, nproc}), passed);
  EXPECT_THAT(lines({DTRUN_BINARY, nproc, "--pass-local-rank"}), passed);
  EXPECT_THAT(lines({link, nproc, "--use_env"}), not_passed);
  EXPECT_THAT(lines({link, nproc, "--use-env"}), not_passed);
  EXPECT_THAT(lines({same, nproc}), not_passed);
  // Its own errors end as torchrun's do.
  EXPECT_EQ(testing_support::run_command({same, "--nnodes=0", "x"}, job.options()).exit_code, 2);
  EXPECT_EQ(testing_support::run_command({same, "./none"}, job.options()).exit_code, 1);
  const std::vector<std::string> failing = {"sh", "-c", "exit 7"};
  const auto code_of = [&](std::vector<std::string> words) {
    words.insert(words.end(), failing.begin(), failing.end());
    return testing_support::run_command(words, job.options()).exit_code;
  };
  EXPECT_EQ(code_of({same}), 1);
  EXPECT_EQ(code_of({same, "--exit=first"}), 7);
  EXPECT_THAT(lines({DTRUN_BINARY, nproc, "--use-env"}), not_passed);
}

TEST(StartTest, LogDirKeepsTheErrorFilesInTorchrunsLayout) {
  LauncherJob job;
  const CommandResult result =
      job.run({"--nproc_per_node=2", "--rdzv_id=r1", "--log_dir=" + job.folder() + "/logs", "sh",
               "-c", "echo $TORCHELASTIC_ERROR_FILE"});
  for (const std::string& line : result.sorted_lines()) {
    EXPECT_THAT(line, testing::MatchesRegex(".*/logs/r1_[A-Za-z0-9]+/attempt_0/[01]/error.json"));
    EXPECT_EQ(::access(line.substr(0, line.rfind('/')).c_str(), W_OK), 0) << line;
  }
  EXPECT_THAT(job.left_behind(), ElementsAre("logs"));
}

}  // namespace
}  // namespace dtrun::launcher
