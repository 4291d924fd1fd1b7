// How long does it take until N processes that do nothing have come to their main? dtrun beside
// Open MPI, MPICH, torchrun, whoever is named, and a bare loop of fork and exec, all in one run,
// taking turns, so that the machine's moods hit all alike.
//
//     launch_bench [--runs R] [--dtrun PATH] [--torchrun PATH] [--peer "NAME=COMMAND"] [--alone]
//                  [N...]
//
// N: 1 4 64 256 1000. --alone: no peers but the bare loop. In COMMAND, N, =N or -nN stands for the
// number. Then: dtrun's own cost of one rank and of each more, a restart of 16 ranks, and a rank's
// death till it is known here and on another node. A peer that is not there is left out and said
// so; a launch that does not end in a minute is killed and counted as "hung".
#include <fmt/core.h>
#include <stdlib.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "launch_contender.h"

namespace {

struct Options {
  int runs = 15;
  std::string dtrun = DTRUN_BENCH_BIN "/dtrun";
  std::string torchrun;
  std::vector<std::string> peers;
  std::vector<int> sizes;
  bool alone = false;
};

constexpr double kLongLaunch = 5000;  // ms; is not waited for again and again
constexpr int kFewRanks = 16;         // so few start so fast that each contender has all runs

struct Series {
  std::vector<double> all_main, end;
  int hung = 0;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

double least(const std::vector<double>& values) {
  return values.empty() ? 0 : *std::min_element(values.begin(), values.end());
}

std::vector<LaunchContender> make_contenders(const Options& options) {
  std::vector<LaunchContender> all = {
      {.name = "fork+exec loop", .command = {}},
      {.name = "dtrun", .command = {options.dtrun, "--nproc_per_node=N"}, .restarts = true},
      {.name = "MPICH", .command = {"mpiexec.mpich", "-np", "N"}, .most_runs = 5},
      {.name = "Open MPI",
       .command = {"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--mca",
                   "odls_base_num_threads", "0", "-np", "N"},
       .most_runs = 5},
  };
  for (const std::string& peer : options.peers) {
    LaunchContender contender{
        .name = peer.substr(0, peer.find('=')), .command = {}, .most_runs = 5};
    std::istringstream words(peer.substr(peer.find('=') + 1));
    for (std::string word; words >> word;) contender.command.push_back(word);
    all.push_back(contender);
  }
  if (!options.torchrun.empty())
    all.push_back({.name = "torchrun",
                   .command = {options.torchrun, "--no-python", "--nproc-per-node=N"},
                   .most_ranks = 256,
                   .most_runs = 3,
                   .restarts = true});
  if (options.alone) all.resize(2);
  std::erase_if(all, [](const LaunchContender& contender) {
    const bool absent = !contender.command.empty() && !is_installed(contender.command[0]);
    if (absent)
      fmt::print("{} is not there ({}): left out\n", contender.name, contender.command[0]);
    return absent;
  });
  return all;
}

void print_row(int n, const std::string& name, const Series& series, const Series& bare) {
  if (series.all_main.empty()) {
    fmt::print("{:>5}  {:<16}{:>60}\n", n, name,
               fmt::format("no launch was well, {} hung", series.hung));
    return;
  }
  fmt::print("{:>5}  {:<16}{:>10.2f}{:>10.2f}{:>12.2f}{:>12.2f}{:>12.2f}{:>6}\n", n, name,
             median(series.all_main), least(series.all_main),
             median(series.all_main) / median(bare.all_main),
             least(series.all_main) / least(bare.all_main), median(series.end), series.hung);
  std::fflush(stdout);
}

std::vector<Series> measure(const std::vector<LaunchContender>& contenders, int n, int runs) {
  std::vector<Series> result(contenders.size());
  for (int run = -1; run < runs; ++run)  // the first to warm up
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      if (n > contenders[i].most_ranks) continue;
      if (run >= contenders[i].most_runs && n > kFewRanks) continue;
      if (result[i].hung > 1 || (run > 0 && least(result[i].end) > kLongLaunch)) continue;
      const auto launched = launch(contenders[i], n);
      if (!launched) ++result[i].hung;
      if (!launched || run < 0) continue;
      result[i].all_main.push_back(launched->all_main);
      result[i].end.push_back(launched->end);
    }
  return result;
}

void print_own_costs(const std::map<int, std::vector<Series>>& all) {
  const auto& [low, few] = *all.begin();
  const auto& [high, many] = *all.rbegin();
  if (low == 1)
    fmt::print(
        "\ndtrun's own cost, n=1 less a bare fork and exec: median {:.2f} ms, least {:.2f} ms\n",
        median(few[1].all_main) - median(few[0].all_main),
        least(few[1].all_main) - least(few[0].all_main));
  if (high == low) return;
  const auto slope = [&](std::size_t i, double (*of)(const std::vector<double>&)) {
    return (of(many[i].all_main) - of(few[i].all_main)) / (high - low);
  };
  const auto middle = [](const std::vector<double>& values) { return median(values); };
  fmt::print(
      "for each rank more, {} to {}: dtrun {:.4f} ms, bare loop {:.4f} ms, ratio {:.2f} "
      "(of the least times {:.2f})\n",
      low, high, slope(1, middle), slope(0, middle), slope(1, middle) / slope(0, middle),
      slope(1, least) / slope(0, least));
}

void measure_restart(const std::vector<LaunchContender>& contenders, int runs) {
  constexpr int kRanks = 16;
  for (const LaunchContender& contender : contenders) {
    if (!contender.restarts) continue;
    std::vector<double> times, starts;
    for (int run = 0; run < std::min(runs, contender.most_runs); ++run) {
      if (const auto time = restart(contender, kRanks)) times.push_back(*time);
      if (const auto bare = launch(contenders[0], kRanks)) starts.push_back(bare->all_main);
    }
    fmt::print(
        "restart of {} ranks by {}: median {:.1f} ms, least {:.1f} ms; their bare start {:.1f} "
        "ms, least {:.1f} ms\n",
        kRanks, contender.name, median(times), least(times), median(starts), least(starts));
  }
}

void measure_death(const std::string& dtrun, int runs) {
  std::vector<double> noticed, told;
  for (int run = 0; run < runs; ++run)
    if (const auto times = death(dtrun)) {
      noticed.push_back(times->noticed);
      told.push_back(times->told);
    }
  fmt::print(
      "a rank is killed: SIGTERM in a rank beside it after {:.2f} ms (least {:.2f}, worst {:.2f}), "
      "on another node after {:.2f} ms (least {:.2f}, worst {:.2f}); {} of {} runs\n",
      median(noticed), least(noticed), noticed.empty() ? 0 : *std::ranges::max_element(noticed),
      median(told), least(told), told.empty() ? 0 : *std::ranges::max_element(told), noticed.size(),
      runs);
}

void describe(CLI::App& app, Options& options) {
  app.add_option("N", options.sizes, "how many processes: 1 4 64 256 1000")
      ->check(CLI::PositiveNumber);
  app.add_option("--runs", options.runs, "of each contender")->check(CLI::PositiveNumber);
  app.add_option("--dtrun", options.dtrun, "the dtrun to measure");
  app.add_option("--torchrun", options.torchrun, "a torchrun to measure beside it");
  app.add_option("--peer", options.peers, "NAME=COMMAND of another one")
      ->allow_extra_args(false)
      ->check([](const std::string& peer) {
        return peer.find('=') == peer.npos ? "is not NAME=COMMAND" : "";
      });
  app.add_flag("--alone", options.alone, "no peers but the bare loop");
}

std::string load() {
  std::ifstream file("/proc/loadavg");
  std::string average;
  file >> average;
  return average;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("How long does it take until N processes have come to their main?");
  describe(app, options);
  CLI11_PARSE(app, argc, argv);
  if (options.sizes.empty()) options.sizes = {1, 4, 64, 256, 1000};
  // torchrun says much about it.
  ::setenv("OMP_NUM_THREADS", "1", 1);
  const std::vector<LaunchContender> contenders = make_contenders(options);
  fmt::print("load average {}\n{:>5}  {:<16}{:>10}{:>10}{:>12}{:>12}{:>12}{:>6}\n", load(), "N",
             "ms to main", "median", "least", "x bare", "x bare, min", "to the end", "hung");
  std::map<int, std::vector<Series>> all;
  for (const int n : options.sizes) {
    all[n] = measure(contenders, n, options.runs);
    for (std::size_t i = 0; i < contenders.size(); ++i)
      if (n <= contenders[i].most_ranks) print_row(n, contenders[i].name, all[n][i], all[n][0]);
  }
  print_own_costs(all);
  measure_restart(contenders, options.runs);
  measure_death(options.dtrun, options.runs);
  fmt::print("load average {}\n", load());
}
