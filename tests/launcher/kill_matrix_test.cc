// Whoever of a job is hit, whenever, by whatever signal: nothing is left, and the verdict is right.
// A cell of the matrix is one job that is hit once; docs/launching.md says the same in words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "dtrun/base/error.h"
#include "launcher/launcher_job.h"
#include "launcher/living_processes.h"
#include "launcher/private_machine.h"

namespace dtrun::launcher {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::Command;
using testing_support::CommandResult;

constexpr seconds kLimit{5};  // in which all must be gone: far more than it takes on a busy machine
constexpr int kRanks = 2;

enum class Victim { kWorker, kChild, kDetached, kKeeper, kGuard, kAgent, kAgentAndGuard, kNode };
enum class MatrixMoment { kStart, kIdle, kCollective, kRestart, kStop };

constexpr const char* kVictims[] = {"worker", "its child", "its detached child", "keeper",
                                    "guard",  "agent",     "agent and guard",    "node"};
constexpr const char* kMoments[] = {"start", "idle", "collective", "restart", "stop"};
constexpr const char* kContainments[] = {"auto", "namespace", "guard"};
constexpr int kSignals[] = {SIGKILL, SIGTERM, SIGSTOP, SIGSEGV};

struct Hit {
  Victim victim;
  MatrixMoment moment;
  int signal;
  int delay = 0;  ///< in turns of a loop: moves the hit through a moment that passes
  std::string containment = "auto";

  std::string describe() const {
    return std::string(kVictims[static_cast<int>(victim)]) + " at " +
           kMoments[static_cast<int>(moment)] + ", " + base::signal_name(signal) + ", " +
           containment;
  }
  bool deadly() const {
    // The first process of a pid namespace cannot be sent what it does not handle.
    if (victim == Victim::kGuard && containment == "namespace") return signal == SIGKILL;
    return signal == SIGKILL || signal == SIGSEGV;
  }
};

// Of the job whose keeper that is, or was.
std::vector<std::string> cgroups_of(pid_t keeper) {
  std::vector<std::string> paths;
  for (const char* folder : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) {
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(folder, none))
      if (entry.path().filename().string().starts_with("dtrun." + std::to_string(keeper) + "."))
        paths.push_back(entry.path());
  }
  return paths;
}

// A process has no command line while it executes its program, but its cgroup always.
std::vector<pid_t> processes_in_cgroups_of(pid_t keeper) {
  std::vector<pid_t> all;
  for (const std::string& path : cgroups_of(keeper)) {
    std::ifstream file(path + "/cgroup.procs");
    for (pid_t pid = 0; file >> pid;) all.push_back(pid);
  }
  return all;
}

// Ranks with a child and a detached one. They end on SIGTERM, but for those of a job that is hit
// while it is being stopped: they need to be killed. Of one that restarts, rank 0 fails at first.
std::string script(MatrixMoment moment, const std::string& token) {
  std::string text = "setsid sleep " + token + " & sleep " + token + " & echo up $RANK; ";
  if (moment == MatrixMoment::kStop) text += "trap '' TERM; echo deaf $RANK; ";
  if (moment == MatrixMoment::kRestart)
    text += "[ $RANK = 0 ] && [ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 3; echo again $RANK; ";
  if (moment == MatrixMoment::kCollective)
    return text + "exec " DTRUN_WORKERS "/page_worker wait-in-collective wait-in-collective " +
           token;
  return text + "while :; do wait; done";
}

class Job {
 public:
  explicit Job(const Hit& hit)
      : hit_(hit),
        command_({DTRUN_BINARY, "--containment=" + hit.containment,
                  "--nproc_per_node=" + std::to_string(kRanks), "--max-restarts",
                  hit.moment == MatrixMoment::kRestart ? "1" : "0", "--shutdown-timeout",
                  hit.moment == MatrixMoment::kStop ? "0.3" : "5", "sh", "-c",
                  script(hit.moment, token_)},
                 options()) {}

  CommandResult run() {
    reach_moment();
    strike();
    return end();
  }

  void expect_nothing_left() {
    EXPECT_TRUE(all_gone_within(token_, kLimit)) << describe_processes_with(token_);
    EXPECT_EQ(PrivateMachine::left_within(kLimit), "");
    // A machine that goes takes its files along; the next dtrun removes the cgroup.
    if (hit_.victim == Victim::kNode && hit_.deadly()) {
      EXPECT_EQ(run_dtrun({"true"}).exit_code, 0);
    } else {
      EXPECT_THAT(job_.left_behind(), IsEmpty());
    }
    EXPECT_THAT(cgroups_of(keeper_), IsEmpty());
  }

 private:
  testing_support::CommandOptions options() {
    testing_support::CommandOptions options = job_.options();
    // Sanitizers would make exit codes of SIGSEGV. A SIGCONT takes back the SIGSTOP by which the
    // leak check stops its own process, and that check then waits for ever.
    options.environment["ASAN_OPTIONS"] = "handle_segv=0:detect_leaks=0";
    options.environment["TSAN_OPTIONS"] = "handle_segv=0:atexit_sleep_ms=0";
    return options;
  }

  bool wait_for_ranks(const std::string& word) {
    for (int rank = 0; rank < kRanks; ++rank)
      if (!command_.wait_for_output(word + " " + std::to_string(rank))) return false;
    return true;
  }

  void reach_moment() {
    const bool passes =
        hit_.moment == MatrixMoment::kStart || hit_.moment == MatrixMoment::kRestart;
    if (hit_.moment != MatrixMoment::kStart) {
      EXPECT_TRUE(wait_for_ranks("up"));
      // What is looked for at the end can be seen.
      EXPECT_EQ(PrivateMachine::left_within(seconds(0)).empty(), ::geteuid() != 0);
    }
    if (hit_.moment == MatrixMoment::kStop) {
      EXPECT_TRUE(wait_for_ranks("deaf"));
      command_.signal(SIGTERM);
    }
    for (int i = 0; passes && i < hit_.delay; ++i) (void)children_of(command_.pid());
  }

  std::vector<pid_t> victims() {
    if (hit_.victim == Victim::kNode) {
      if (keeper_ == 0) keeper_ = processes_of(command_.pid()).keeper;
      std::vector<pid_t> all = processes_of_the_job();
      all.push_back(command_.pid());  // while it executes dtrun it has no command line
      return all;
    }
    const LauncherProcesses own = wait_for_guard(command_.pid());
    keeper_ = own.keeper;
    switch (hit_.victim) {
      case Victim::kAgent:
        return {own.agent};
      case Victim::kKeeper:
        return {own.keeper};
      case Victim::kGuard:
        return {own.guard};
      case Victim::kAgentAndGuard:
        return {own.guard, own.agent};
      default:
        return {below_the_guard(own)};
    }
  }

  // The last rank, or what it has started: where it has not yet, the rank; then nobody.
  pid_t below_the_guard(const LauncherProcesses& own) const {
    const std::vector<pid_t> ranks = children_of(own.guard);
    if (ranks.empty()) return 0;
    if (hit_.victim == Victim::kWorker) return ranks.back();
    const std::vector<pid_t> started = children_of(ranks.back());
    if (started.empty()) return 0;
    return hit_.victim == Victim::kDetached ? started.front() : started.back();
  }

  std::vector<pid_t> processes_of_the_job() const {
    std::vector<pid_t> all = processes_with(token_);
    if (keeper_ == 0) return all;
    const std::vector<pid_t> in_cgroups = processes_in_cgroups_of(keeper_);
    all.insert(all.end(), in_cgroups.begin(), in_cgroups.end());
    return all;
  }

  void strike() {
    do {
      for (const pid_t pid : victims())
        if (pid > 0) ::kill(pid, hit_.signal);
      // One that was just forking may be missed once.
    } while (hit_.victim == Victim::kNode && hit_.deadly() && !processes_of_the_job().empty());
  }

  bool kills_the_job() const {
    if (!hit_.deadly()) return false;
    return hit_.victim == Victim::kGuard || hit_.victim == Victim::kAgent ||
           hit_.victim == Victim::kAgentAndGuard || hit_.victim == Victim::kNode;
  }

  // A job that goes on is stopped by its operator, whom it still obeys.
  CommandResult end() {
    if (!kills_the_job()) {
      if (hit_.signal == SIGSTOP && hit_.victim == Victim::kNode)
        for (const pid_t pid : processes_with(token_)) ::kill(pid, SIGCONT);
      command_.signal(SIGCONT);
      // A rank's death ends the job by itself.
      const bool rank_dies = hit_.victim == Victim::kWorker && hit_.signal != SIGSTOP;
      if (!rank_dies || hit_.moment == MatrixMoment::kStart ||
          hit_.moment == MatrixMoment::kRestart)
        if (hit_.moment != MatrixMoment::kStop) command_.signal(SIGTERM);
    }
    return command_.finish();
  }

  Hit hit_;
  std::string token_ = unique_token();
  pid_t keeper_ = 0;
  LauncherJob job_;
  Command command_;
};

void expect_verdict(const Hit& hit, const CommandResult& result) {
  EXPECT_FALSE(result.killed_at_limit) << result.describe();
  const bool agent_hit = hit.victim == Victim::kAgent || hit.victim == Victim::kAgentAndGuard ||
                         hit.victim == Victim::kNode;
  // A job that is being stopped was stopped, whatever comes then.
  const bool stopped = hit.moment == MatrixMoment::kStop && result.exit_code == 143;
  if (agent_hit && hit.deadly()) {
    // It may have seen the guard's end before its own.
    EXPECT_TRUE(result.exit_code == 125 || result.signal == hit.signal || stopped)
        << result.describe();
  } else if (hit.victim == Victim::kGuard && hit.deadly()) {
    EXPECT_TRUE(result.exit_code == 125 || stopped) << result.describe();
    EXPECT_THAT(result.err,
                HasSubstr("the guard process has died (" + base::signal_name(hit.signal)));
  } else if (hit.victim == Victim::kWorker && hit.signal != SIGSTOP) {
    // Or stopped, where the operator's word came first.
    EXPECT_TRUE(result.exit_code == 128 + hit.signal || result.exit_code == 143 ||
                (hit.moment == MatrixMoment::kStart && result.signal == SIGTERM))
        << result.describe();
    const bool only_one =
        hit.moment == MatrixMoment::kIdle || hit.moment == MatrixMoment::kCollective;
    if (!only_one) return;
    EXPECT_EQ(result.exit_code, 128 + hit.signal) << result.describe();
    EXPECT_THAT(result.err, HasSubstr(base::signal_name(hit.signal)));
  } else {
    // At the start, dtrun may not handle signals yet.
    const bool at_once = hit.moment == MatrixMoment::kStart && result.signal == SIGTERM;
    EXPECT_TRUE(result.exit_code == 143 || at_once) << result.describe();
    if (hit.victim == Victim::kGuard && hit.signal == SIGSTOP) {
      EXPECT_THAT(result.err, HasSubstr("was stopped, and goes on"));
    }
  }
}

void run(const Hit& hit) {
  SCOPED_TRACE(hit.describe());
  Job job(hit);
  expect_verdict(hit, job.run());
  job.expect_nothing_left();
}

void move_to_own_machine() {
  PrivateMachine::move_to_one();
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  // Until it executes dtrun, a child has the handlers of this process, a sanitizer's among them.
  ::signal(SIGSEGV, SIG_DFL);
}

class KillMatrixTest : public testing::TestWithParam<Victim> {
 protected:
  static void SetUpTestSuite() { move_to_own_machine(); }
};

TEST_P(KillMatrixTest, NothingIsLeftAndTheVerdictIsRight) {
  int cells = 0;
  for (int moment = 0; moment < 5; ++moment) {
    for (int signal = 0; signal < 4 && !HasFailure(); ++signal) {
      // The short one takes every fifth cell, another one of each victim.
      if ((moment + 2 * signal + static_cast<int>(GetParam())) % DTRUN_MATRIX_STEP != 0) continue;
      run({GetParam(), static_cast<MatrixMoment>(moment), kSignals[signal], 3 * signal});
      ++cells;
    }
  }
  std::printf("%d cells\n", cells);
}

INSTANTIATE_TEST_SUITE_P(Victims, KillMatrixTest,
                         testing::Values(Victim::kWorker, Victim::kChild, Victim::kDetached,
                                         Victim::kKeeper, Victim::kGuard, Victim::kAgent,
                                         Victim::kAgentAndGuard, Victim::kNode),
                         [](const auto& param) {
                           std::string name = kVictims[static_cast<int>(param.param)];
                           for (char& letter : name)
                             if (letter == ' ') letter = '_';
                           return name;
                         });

TEST(RandomKillTest, NothingIsLeftAndTheVerdictIsRight) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer answers a SIGSEGV itself, and not always alike";
#endif
  move_to_own_machine();
  std::mt19937 random(DTRUN_RANDOM_SEED);
  const auto pick = [&](int count) {
    return static_cast<int>(random() % static_cast<unsigned>(count));
  };
  for (int i = 0; i < DTRUN_RANDOM_KILLS && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE("number " + std::to_string(i));
    run({static_cast<Victim>(pick(8)), static_cast<MatrixMoment>(pick(5)), kSignals[pick(4)],
         pick(200), kContainments[::geteuid() == 0 ? i % 3 : 0]});
  }
}

}  // namespace
}  // namespace dtrun::launcher
