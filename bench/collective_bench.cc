// How long do collectives take on one machine? dtrun's cpu backend beside gloo, Open MPI and MPICH,
// all in one run, taking turns, so that the machine's moods hit all alike.
//
//     collective_bench [--ranks N] [--rounds R] [--mpi DIR] [--only NAME]... [--operation NAME]...
//                      [BYTES]...
//
// --mpi: the MPIs of that folder (openmpi, mpich, intel) in place of the system's; the build must
// have had -DDTRUN_MPI_DIR=DIR.
// Default: 2 ranks, 7 rounds, all operations, 8 B, 4 KiB, 64 KiB, 1 MiB, 16 MiB, f32. A round
// starts every contender once, each by its own launcher; dtrun-bench's loop measures all of them.
// The table has the median of the rounds' medians, the least time of all, and dtrun's part of the
// contender's median. Every call's result is checked. A contender that is not installed is named.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "bench/operation.h"
#include "support/command.h"

using namespace dtrun;

namespace {

struct Options {
  int ranks = 2;
  int rounds = 7;
  std::string folder;  ///< of the programs
  std::string mpi;     ///< of other MPIs
  std::vector<std::string> only;
  std::vector<std::string> operations;
  std::vector<std::size_t> sizes;
};

/// An operation and its bytes.
using Cell = std::pair<std::string, std::size_t>;

std::vector<Cell> cells_of(const Options& options) {
  std::vector<Cell> cells;
  for (const std::string& operation : options.operations) {
    if (operation == "barrier")
      cells.emplace_back(operation, 0);
    else
      for (const std::size_t bytes : options.sizes) cells.emplace_back(operation, bytes);
  }
  return cells;
}

struct Times {
  std::vector<double> medians;
  double least = 1e300;
};

struct Contender {
  std::string name;
  std::string program;          ///< its ranks
  std::string launcher;         ///< words in front of the program
  std::map<Cell, Times> times;  ///< in microseconds
};

std::string file_of(const std::string& words) {
  return words.substr(0, words.find(' '));
}

bool is_there(const std::string& program) {
  if (program.find('/') != std::string::npos) return ::access(program.c_str(), X_OK) == 0;
  return ::access(("/usr/bin/" + program).c_str(), X_OK) == 0;
}

bool is_crowded(const Options& options) {
  return options.ranks > static_cast<int>(std::thread::hardware_concurrency());
}

std::vector<Contender> system_mpis(const Options& options) {
  const char* const binding = is_crowded(options) ? "--oversubscribe" : "--bind-to core";
  return {{"Open MPI",
           options.folder + "collective_openmpi",
           fmt::format("mpirun.openmpi --allow-run-as-root {} -np {}", binding, options.ranks),
           {}},
          {"MPICH",
           options.folder + "collective_mpich",
           fmt::format("mpiexec.mpich -np {}", options.ranks),
           {}}};
}

std::vector<Contender> other_mpis(const Options& options) {
  const auto contender = [&](const char* name, const char* folder, const std::string& words) {
    const std::string home = options.mpi + "/" + folder;
    return Contender{
        name,
        fmt::format("{}collective_{}_other", options.folder, folder),
        fmt::format("/usr/bin/env LD_LIBRARY_PATH={0}/lib I_MPI_ROOT={0} {0}/bin/mpiexec "
                    "{1} -n {2}",
                    home, words, options.ranks),
        {}};
  };
  const bool crowded = is_crowded(options);
  return {contender("Open MPI", "openmpi",
                    crowded ? "--allow-run-as-root --oversubscribe"
                            : "--allow-run-as-root --bind-to core"),
          contender("MPICH", "mpich", crowded ? "" : "-bind-to core"),
          contender("Intel MPI", "intel", "")};
}

std::vector<Contender> make_contenders(const Options& options) {
  const std::string dtrun =
      fmt::format("{}dtrun --nproc_per_node={}", options.folder, options.ranks);
  std::vector<Contender> all = {
      {"dtrun", options.folder + "collective_dtrun", dtrun, {}},
      {"in place", options.folder + "collective_dtrun", dtrun, {}},
      {"gloo", options.folder + "collective_gloo", dtrun, {}},
  };
  std::vector<Contender> mpis = options.mpi.empty() ? system_mpis(options) : other_mpis(options);
  for (Contender& mpi : mpis) all.push_back(std::move(mpi));
  std::erase_if(all, [&](const Contender& contender) {
    if (!options.only.empty() &&
        std::find(options.only.begin(), options.only.end(), contender.name) == options.only.end())
      return true;
    for (const std::string& file : {file_of(contender.launcher), contender.program}) {
      if (is_there(file)) continue;
      fmt::print("{} is left out: {} is missing\n", contender.name, file);
      return true;
    }
    return false;
  });
  return all;
}

/// As many as take some tenths of a second.
int samples_of(std::size_t bytes) {
  if (bytes <= 4096) return 200;
  if (bytes <= 256 << 10) return 400;
  if (bytes <= 4 << 20) return 100;
  return 12;
}

std::string command_of(const Contender& contender, const Options& options,
                       const std::string& folder) {
  std::string command = contender.launcher + " " + contender.program;
  if (contender.name == "gloo") command += " " + folder;
  if (contender.name == "in place") command += " --shared-memory";
  for (const auto& [operation, bytes] : cells_of(options))
    command += fmt::format(" {} {} {}", operation, bytes, samples_of(bytes));
  return "OMP_NUM_THREADS=1 timeout 120 " + command + " </dev/null 2>&1";
}

void run_once(Contender& contender, const Options& options) {
  char folder[] = "/tmp/collective_bench.XXXXXX";
  if (::mkdtemp(folder) == nullptr) return;
  testing_support::Command command({"sh", "-c", command_of(contender, options, folder)},
                                   {.limit = std::chrono::minutes(3)});
  while (const auto line = command.next_line("")) {
    Cell cell;
    double least = 0;
    double median = 0;
    std::istringstream words(*line);
    if (!(words >> cell.first >> cell.second >> least >> median)) {
      fmt::print("{}: {}\n", contender.name, *line);
      continue;
    }
    Times& times = contender.times[cell];
    times.medians.push_back(median);
    times.least = std::min(times.least, least);
  }
  if (command.finish().exit_code != 0) fmt::print("{} failed\n", contender.name);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void print_table(const std::vector<Contender>& contenders, const Options& options) {
  fmt::print("{} ranks, f32, {} rounds\n", options.ranks, options.rounds);
  fmt::print("{:<15}{:>10}  {:<10}{:>12}{:>12}{:>20}\n", "", "bytes", "", "median us", "min us",
             "dtrun's part of it");
  for (const Cell& cell : cells_of(options)) {
    double own = 0;
    for (const Contender& contender : contenders) {
      const auto found = contender.times.find(cell);
      if (found == contender.times.end()) continue;
      const double middle = median(found->second.medians);
      if (contender.name == "dtrun") own = middle;
      fmt::print("{:<15}{:>10}  {:<10}{:>12.3f}{:>12.3f}{:>20.2f}\n", cell.first, cell.second,
                 contender.name, middle, found->second.least, own / middle);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  const std::string self = argv[0];
  options.folder = self.substr(0, self.rfind('/') + 1);
  if (options.folder.empty()) options.folder = "./";
  CLI::App app("How long do collectives take on one machine?");
  app.add_option("BYTES", options.sizes, "8, 4 KiB, 64 KiB, 1 MiB and 16 MiB")
      ->check(CLI::PositiveNumber);
  app.add_option("--ranks", options.ranks, "of each contender")->check(CLI::PositiveNumber);
  app.add_option("--rounds", options.rounds, "of which the median is told")
      ->check(CLI::PositiveNumber);
  app.add_option("--mpi", options.mpi, "a folder of MPIs in place of the system's")
      ->check(CLI::ExistingDirectory);
  app.add_option("--only", options.only, "this contender")->allow_extra_args(false);
  app.add_option("--operation", options.operations, "this one, as dtrun-bench calls it")
      ->allow_extra_args(false);
  CLI11_PARSE(app, argc, argv);
  if (options.sizes.empty()) options.sizes = {8, 4 << 10, 64 << 10, 1 << 20, 16 << 20};
  if (options.operations.empty())
    for (const bench::Operation operation : bench::all_operations())
      options.operations.emplace_back(bench::operation_name(operation));
  std::vector<Contender> contenders = make_contenders(options);
  for (int round = 0; round < options.rounds; ++round)
    for (Contender& contender : contenders) run_once(contender, options);
  print_table(contenders, options);
}
