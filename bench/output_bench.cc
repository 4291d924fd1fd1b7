// How fast do the ranks' lines come through a launcher? N processes write lines as fast as they
// can, and this reads what the launcher makes of them: dtrun with each of its ways to show lines,
// beside `cat`, a bare loop of splice, Open MPI, MPICH and torchrun, all in one run, taking turns.
// Told are the bytes that the ranks wrote, by the time from the launcher's start to the end of its
// output, and the most memory that agent, keeper and guard of dtrun had together.
//
//     output_bench [--ranks N] [--mib M] [--rounds R] [--dtrun PATH] [--torchrun PATH]
#include <fmt/core.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "dtrun/base/child_process.h"
#include "dtrun/base/env.h"
#include "dtrun/base/tool_process.h"
#include "dtrun/base/unique_fd.h"

using namespace dtrun;

namespace {

struct Options {
  int ranks = 2;
  int mib = 256;  // of each rank
  int rounds = 5;
  std::string dtrun = DTRUN_BENCH_BIN "/dtrun";
  std::string torchrun;
};

struct Contender {
  std::string name;
  std::string command;  // for a shell; LOAD: the rank's program with its arguments
  std::string kind = "own";
  int share = 1;  // of the bytes: of those who are slow
  std::vector<double> speeds = {};
  double memory = 0;  // MB
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::vector<int> children_of(int pid) {
  std::ifstream stream(fmt::format("/proc/{0}/task/{0}/children", pid));
  std::vector<int> children;
  for (int child; stream >> child;) children.push_back(child);
  return children;
}

// The most that dtrun's own processes had below a process.
double most_memory_below(int pid) {
  double sum = 0;
  std::ifstream stream(fmt::format("/proc/{}/status", pid));
  bool own = false;
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with("Name:")) own = line.find("dtrun") != line.npos;
    if (own && line.starts_with("VmHWM:")) sum += std::stod(line.substr(6)) / 1e3;
  }
  for (const int child : children_of(pid)) sum += most_memory_below(child);
  return sum;
}

bool is_installed(const std::string& program) {
  try {
    base::find_program(program, base::get_env("PATH").value_or(""));
    return true;
  } catch (const base::SpawnError&) {
    return false;
  }
}

// Reads all that the command writes; megabytes of the ranks' per second, 0: it has failed.
double measure(Contender& contender, const Options& options) {
  const int mib = std::max(1, options.mib / contender.share);
  std::string command = contender.command;
  const std::string load =
      fmt::format("{}/output_load {} {}", DTRUN_BENCH_BIN, contender.kind, mib);
  for (std::size_t at; (at = command.find("LOAD")) != command.npos;) command.replace(at, 4, load);
  base::EventLoop loop;
  std::optional<base::ExitStatus> status;
  base::Pipe pipe = base::make_pipe();
  const auto start = std::chrono::steady_clock::now();
  const base::ToolProcess shell(loop,
                                {.path = "/bin/sh",
                                 .arguments = {"-c", "exec " + command},
                                 .environment = base::Environment::current().as_strings()},
                                {.out = pipe.write_end.get()},
                                [&](base::ExitStatus ended) { status = ended; });
  pipe.write_end.reset();
  static char block[1 << 20];
  std::size_t bytes = 0, looked = 0;
  for (ssize_t n; (n = ::read(pipe.read_end.get(), block, sizeof block)) > 0;) {
    bytes += static_cast<std::size_t>(n);
    if (bytes - looked < 32u << 20) continue;
    looked = bytes;
    contender.memory = std::max(contender.memory, most_memory_below(shell.pid()));
  }
  const double time = seconds_since(start);
  while (!status) loop.run_some(base::Deadline::never());
  return status->success() ? mib * 1.048576 * options.ranks / time : 0;
}

std::vector<Contender> make_contenders(const Options& options, const std::string& folder) {
  std::string all = "LOAD";
  for (int i = 1; i < options.ranks; ++i) all += " & LOAD";
  const std::string together = fmt::format("sh -c '( {} & wait ) ", all);
  const std::string splice = DTRUN_BENCH_BIN "/output_load splice'";
  const auto dtrun = [&](const std::string& how, const std::string& what) {
    return fmt::format("{} --nproc_per_node={} --log-dir={}/dtrun {} {} LOAD", options.dtrun,
                       options.ranks, folder, how, what);
  };
  std::vector<Contender> contenders = {
      {"cat", together + "| cat'"},
      {"a loop of splice", together + "| " + splice},
      {"a file each, no launcher",
       fmt::format("sh -c 'for i in $(seq {}); do LOAD > {}/$i & done; wait'", options.ranks,
                   folder)},
      {"dtrun", dtrun("", "")},
      {"dtrun, tags", dtrun("--tag=always", "")},
      {"dtrun -r 3", dtrun("-r 3", "")},
      {"dtrun -t 3", dtrun("-t 3 --tag=never", "")},
      {"dtrun -t 3, tags, a filter", dtrun("-t 3", "--duplicate-stdout-filters=00000,nan")},
      {"dtrun --fold, all alike", dtrun("--fold", ""), "same"},
      {"dtrun --fold, none alike", dtrun("--fold", "")},
      {"dtrun --log-format=json", dtrun("--log-format=json", "")},
  };
  const auto add_peer = [&](Contender contender, const std::string& program) {
    if (is_installed(program)) return contenders.push_back(std::move(contender));
    fmt::print("{} is not there ({}): left out\n", contender.name, program);
  };
  add_peer(
      {"Open MPI",
       fmt::format("mpirun.openmpi --allow-run-as-root --oversubscribe -np {} LOAD", options.ranks),
       "own", 4},
      "mpirun.openmpi");
  add_peer(
      {"Open MPI, tags",
       fmt::format("mpirun.openmpi --allow-run-as-root --oversubscribe --tag-output -np {} LOAD",
                   options.ranks),
       "own", 4},
      "mpirun.openmpi");
  add_peer({"MPICH", fmt::format("mpiexec.mpich -np {} LOAD", options.ranks), "own", 4},
           "mpiexec.mpich");
  if (!options.torchrun.empty())
    add_peer({"torchrun -t 3",
              fmt::format("{} --no-python --nproc-per-node={} --log-dir={}/torchrun -t 3 LOAD",
                          options.torchrun, options.ranks, folder),
              "own", 8},
             options.torchrun);
  return contenders;
}

std::string load_average() {
  std::ifstream file("/proc/loadavg");
  std::string average;
  file >> average;
  return average;
}

void print_table(std::vector<Contender>& contenders) {
  const auto median = [](std::vector<double>& values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
  };
  const double cat = median(contenders[0].speeds);
  fmt::print("{:<30}{:>10}{:>10}{:>12}{:>12}\n", "MB of the ranks' a second", "median", "most",
             "x cat", "memory, MB");
  for (Contender& contender : contenders) {
    const double middle = median(contender.speeds);
    fmt::print("{:<30}{:>10.0f}{:>10.0f}{:>12.2f}{:>12}\n", contender.name, middle,
               contender.speeds.back(), middle / cat,
               contender.memory > 0 ? fmt::format("{:.1f}", contender.memory) : "");
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("How fast the ranks' lines come through a launcher.");
  app.add_option("--ranks", options.ranks, "ranks that write")->check(CLI::PositiveNumber);
  app.add_option("--mib", options.mib, "MiB that each writes")->check(CLI::PositiveNumber);
  app.add_option("--rounds", options.rounds, "of which the median is told")
      ->check(CLI::PositiveNumber);
  app.add_option("--dtrun", options.dtrun, "the dtrun to measure");
  app.add_option("--torchrun", options.torchrun, "a torchrun to measure beside it");
  CLI11_PARSE(app, argc, argv);
  ::setenv("OMP_NUM_THREADS", "1", 1);
  std::string folder = (std::filesystem::temp_directory_path() / "output_bench_XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) return 1;
  std::vector<Contender> contenders = make_contenders(options, folder);
  fmt::print("{} ranks, {} MiB each, {} rounds; load average {}\n", options.ranks, options.mib,
             options.rounds, load_average());
  for (int round = 0; round < options.rounds; ++round)
    for (Contender& contender : contenders) {
      contender.speeds.push_back(measure(contender, options));
      for (const auto& entry : std::filesystem::directory_iterator(folder))
        std::filesystem::remove_all(entry.path());
    }
  print_table(contenders);
  fmt::print("load average {}\n", load_average());
  std::filesystem::remove_all(folder);
}
