// A training of many minutes of which a rank is killed every few seconds: it has the loss of each
// step and the weights of one that nobody has disturbed, and neither a rank's memory grows
// meanwhile nor the launcher's. DTRUN_KILL_STEPS says how long it is.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "examples/checkpoint_folder.h"
#include "launcher/living_processes.h"
#include "support/command.h"

namespace dtrun {
namespace {

using testing_support::CommandResult;
using Clock = std::chrono::steady_clock;

constexpr auto kBetweenKills = std::chrono::seconds(3);
const std::string kGoesOn = "goes on after step ";

std::vector<pid_t> ranks_of(const CheckpointFolder& folder) {
  std::vector<pid_t> ranks;
  for (const pid_t pid : launcher::processes_with(folder.path())) {
    std::error_code gone;
    const auto program =
        std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/exe", gone);
    if (program.filename() == "train_gpt") ranks.push_back(pid);
  }
  return ranks;
}

std::string losses_beside(const CheckpointFolder& folder) {
  return folder.path() + ".csv";
}

std::vector<std::string> long_training(const CheckpointFolder& folder, const std::string& steps) {
  return {DTRUN_BIN "/dtrun",
          "--nproc_per_node=2",
          "--max-restarts=100000",
          DTRUN_BIN "/train_gpt",
          "--mesh",
          "fsdp=2",
          "--steps",
          steps,
          "--every",
          "10",
          "--batch",
          "12",
          "--context",
          "32",
          "--width",
          "32",
          "--sample",
          "0",
          "--dropout",
          "0.1",
          "--checkpoint",
          folder.path(),
          "--checkpoint-every",
          "20",
          "--csv",
          losses_beside(folder)};
}

/// The loss of each step.
std::string losses_of(const CheckpointFolder& folder) {
  const std::string path = losses_beside(folder);
  std::ifstream stream(path);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  std::filesystem::remove(path);
  return text;
}

/// The most memory of the first rank after a tenth of the steps, and after all but a tenth.
std::pair<std::size_t, std::size_t> most_memory_during(testing_support::Command& job,
                                                       const CheckpointFolder& folder, int steps) {
  std::pair<std::size_t, std::size_t> most;
  pid_t rank = 0;
  while (const auto told = job.next_line("step ")) {
    const int step = std::stoi(told->substr(5));
    if (rank == 0) {
      const std::vector<pid_t> ranks = ranks_of(folder);
      if (!ranks.empty()) rank = ranks.front();
    }
    if (step <= steps / 10) most.first = launcher::most_memory_of(rank);
    if (step <= steps - steps / 10) most.second = launcher::most_memory_of(rank);
  }
  return most;
}

TEST(TrainingKillsTest, ARankKilledEveryFewSecondsCostsNoBitOfTheWeights) {
  const char* const asked = std::getenv("DTRUN_KILL_STEPS");
  const std::string steps = asked != nullptr ? asked : "30000";
  const CheckpointFolder calm("calm"), killed("killed");
  testing_support::CommandOptions options;
  options.limit = std::chrono::seconds(2300);
  testing_support::Command undisturbed(long_training(calm, steps), options);
  const auto [early, late] = most_memory_during(undisturbed, calm, std::stoi(steps));
  const CommandResult whole = undisturbed.finish();
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  std::printf(
      "a rank's memory: %zu KiB after a tenth of the steps, %zu KiB after all but a tenth\n",
      early >> 10, late >> 10);
  EXPECT_GT(early, 0U);
  EXPECT_LE(late, early + early / 20);

  std::mt19937 random(18);
  const auto start = Clock::now();
  auto last_kill = start;
  int kills = 0, lines = 0, kept = -1;
  std::size_t launchers = 0, last_launchers = 0;
  testing_support::Command job(long_training(killed, steps), options);
  while (const auto told = job.next_line("")) {
    const bool begins = told->starts_with(kGoesOn);
    lines = begins ? 0 : lines + 1;
    if (begins) {
      EXPECT_GE(std::stoi(told->substr(kGoesOn.size())), kept) << *told;
      last_launchers = launcher::most_memory_of(job.pid());
      if (kills == 3) launchers = last_launchers;
    }
    // Five lines are 50 steps: two checkpoints at least, so it comes on.
    if (lines < 5 || Clock::now() - last_kill < kBetweenKills) continue;
    const std::vector<pid_t> ranks = ranks_of(killed);
    if (ranks.empty()) continue;
    kept = killed.last_kept();
    if (::kill(ranks[random() % ranks.size()], SIGKILL) == 0) ++kills;
    last_kill = Clock::now();
  }
  const CommandResult result = job.finish();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  std::printf("the launcher's: %zu KiB after three kills, %zu KiB after the last\n",
              launchers >> 10, last_launchers >> 10);
  EXPECT_LE(last_launchers, launchers + launchers / 10);
  std::printf("%s steps, %d kills in %.0f s\n", steps.c_str(), kills, seconds);
  EXPECT_GE(kills, 3);
  const std::string losses = losses_of(calm);
  EXPECT_EQ(std::ranges::count(losses, '\n'), 1 + std::stoi(steps));
  EXPECT_EQ(losses_of(killed), losses);
  EXPECT_NE(killed.elements_of(std::stoi(steps)), "");
  EXPECT_EQ(killed.elements_of(std::stoi(steps)), calm.elements_of(std::stoi(steps)));
}

}  // namespace
}  // namespace dtrun
