// How much memory do dtrun's own processes take while N ranks sleep? Sums the proportional set size
// (PSS) of the agent, the keeper and the guard.
//
//     launch_memory [--dtrun PATH] [N]        default: 64
#include <fmt/core.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "support/command.h"

using namespace dtrun;

namespace {

std::vector<int> children_of(int pid) {
  std::ifstream stream(fmt::format("/proc/{0}/task/{0}/children", pid));
  std::vector<int> children;
  for (int child; stream >> child;) children.push_back(child);
  return children;
}

long pss_kib(int pid) {
  std::ifstream stream(fmt::format("/proc/{}/smaps_rollup", pid));
  for (std::string line; std::getline(stream, line);)
    if (line.rfind("Pss:", 0) == 0) return std::stol(line.substr(4));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string self = argv[0];
  std::string dtrun = self.substr(0, self.rfind('/') + 1) + "dtrun";
  int n = 64;
  CLI::App app("How much memory do dtrun's own processes take while N ranks sleep?");
  app.add_option("N", n, "how many ranks")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--dtrun", dtrun, "the dtrun to measure");
  CLI11_PARSE(app, argc, argv);
  testing_support::Command command(
      {dtrun, fmt::format("--nproc_per_node={}", n), "/bin/sleep", "600"});
  const pid_t agent = command.pid();
  // The agent's only child is the keeper, whose only child is the guard; the ranks are the guard's.
  std::vector<int> keepers, guards;
  for (int tries = 0; tries < 1000; ++tries) {
    keepers = children_of(agent);
    if (keepers.size() == 1) guards = children_of(keepers[0]);
    if (guards.size() == 1 && children_of(guards[0]).size() == static_cast<std::size_t>(n)) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (guards.size() != 1) {
    fmt::print("the {} ranks did not come up under one guard\n", n);
    return 1;
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const double agent_mb = pss_kib(agent) / 1e3, keeper_mb = pss_kib(keepers[0]) / 1e3,
               guard_mb = pss_kib(guards[0]) / 1e3;
  fmt::print(
      "{} sleeping ranks: agent {:.1f} MB, keeper {:.1f} MB, guard {:.1f} MB, together {:.1f} MB "
      "(PSS)\n",
      n, agent_mb, keeper_mb, guard_mb, agent_mb + keeper_mb + guard_mb);
  command.signal(SIGTERM);
  command.finish();
}
