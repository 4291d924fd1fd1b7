// LaunchContender: one of those that launch_bench compares, and one launch by it.
#pragma once

#include <optional>
#include <string>
#include <vector>

struct LaunchContender {
  std::string name;
  std::vector<std::string> command;  ///< N in it: the number of ranks. Empty: a loop of fork+exec
  int most_ranks = 1 << 20;
  int most_runs = 1 << 20;
  bool restarts = false;  ///< it is torchrun or dtrun
};

/// Milliseconds since the launcher was started.
struct Launch {
  double first_main = 0;
  double all_main = 0;
  double end = 0;
};

/// nullopt: it failed, or had not ended after a minute.
std::optional<Launch> launch(const LaunchContender& contender, int ranks);

/// From rank 0's end to all ranks in main again; milliseconds.
std::optional<double> restart(const LaunchContender& contender, int ranks);

/// From a rank's death to the first SIGTERM on its node, and on the other; milliseconds.
struct Death {
  double noticed = 0;
  double told = 0;
};
std::optional<Death> death(const std::string& dtrun);

/// Whether it can be started here.
bool is_installed(const std::string& program);
