// How long does it take to start 4 processes that run a function which does nothing, and to join
// them? mp::spawn beside Python's multiprocessing and torch.multiprocessing.spawn, each start
// method, all in one run, taking turns. What is timed is the call in a program that runs already:
// Python's own start and the parent's `import torch` are not in it.
//
//     spawn_bench [--runs R] [--python PATH]      default: 7 runs, PyTorch's python of
//     tests/lab/torch-up
//
// Prints medians in milliseconds, and how many times as long as dtrun the others take.
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dtrun/base/env.h"
#include "dtrun/runtime/mp.h"
#include "python_peer.h"

namespace {

using namespace dtrun;
using bench::PythonPeer;
using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

constexpr int kProcesses = 4;

void do_nothing(int) {}
DTRUN_MP_FUNCTION(do_nothing);

double time_dtrun(const std::string& method) {
  const auto begin = Clock::now();
  mp::spawn(do_nothing, {}, {.nprocs = kProcesses, .start_method = method});
  return Milliseconds(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void print_row(const std::string& method, const std::string& peer, const std::vector<double>& times,
               double dtrun_median) {
  if (times.empty()) {
    fmt::print("{:<12}{:<24}{:>12}\n", method, peer, "failed");
    return;
  }
  fmt::print("{:<12}{:<24}{:>12.1f}{:>12.1f}{:>12.1f}\n", method, peer, median(times),
             *std::min_element(times.begin(), times.end()), median(times) / dtrun_median);
}

void compare(const std::string& method, int runs, PythonPeer& plain, PythonPeer& torch) {
  std::map<std::string, std::vector<double>> times;
  for (int run = -1; run < runs; ++run) {  // the first warms up
    const std::map<std::string, std::optional<double>> now = {
        {"dtrun", time_dtrun(method)},
        {"multiprocessing", plain.time(method)},
        {"torch.multiprocessing", torch.time(method)}};
    for (const auto& [peer, milliseconds] : now)
      if (run >= 0 && milliseconds) times[peer].push_back(*milliseconds);
  }
  for (const char* peer : {"dtrun", "multiprocessing", "torch.multiprocessing"})
    print_row(method, peer, times[peer], median(times["dtrun"]));
}

}  // namespace

int main(int argc, char** argv) {
  mp::run_if_child();
  int runs = 7;
  std::string python = base::get_env("HOME").value_or("") + "/.cache/dtrun/torch-2.11.0/bin/python";
  CLI::App app("How long does it take to start 4 processes that run a function?");
  app.add_option("--runs", runs, "of each start method")->check(CLI::PositiveNumber);
  app.add_option("--python", python, "one that has PyTorch")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (::access(python.c_str(), X_OK) != 0) {
    fmt::print("no python with PyTorch at {}: tests/lab/torch-up makes one\n", python);
    return 1;
  }
  PythonPeer plain(python, "spawn_plain.py");
  PythonPeer torch(python, "spawn_torch.py");
  fmt::print("{:<12}{:<24}{:>12}{:>12}{:>12}\n", "method", "", "median ms", "min ms", "x dtrun");
  for (const char* method : {"spawn", "forkserver", "fork"}) compare(method, runs, plain, torch);
}
