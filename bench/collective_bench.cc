// How long does an f32 all_reduce take on one machine? dtrun's cpu backend beside gloo, Open MPI
// and MPICH, all in one run, taking turns, so that the machine's moods hit all alike.
//
//     collective_bench [--ranks N] [--rounds R] [--only NAME]... [BYTES]...
//
// Default: 2 ranks, 7 rounds, 4 B, 64 KiB, 1 MiB, 16 MiB. A round starts every contender once, each
// by its own launcher. The table has the median of the rounds' medians, the least time of all, and
// dtrun's part of the contender's median. Every call's sums are checked. A contender that is not
// installed is named.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "support/command.h"

using namespace dtrun;

namespace {

struct Options {
  int ranks = 2;
  int rounds = 7;
  std::string folder;  ///< of the programs
  std::vector<std::string> only;
  std::vector<std::size_t> sizes;
};

struct Times {
  std::vector<double> medians;
  double least = 1e300;
};

struct Contender {
  std::string name;
  std::string program;                 ///< its ranks
  std::string launcher;                ///< words in front of the program
  std::map<std::size_t, Times> times;  ///< by size, in microseconds
};

std::string file_of(const std::string& words) {
  return words.substr(0, words.find(' '));
}

bool is_there(const std::string& program) {
  if (program.find('/') != std::string::npos) return ::access(program.c_str(), X_OK) == 0;
  return ::access(("/usr/bin/" + program).c_str(), X_OK) == 0;
}

std::vector<Contender> make_contenders(const Options& options) {
  const std::string dtrun =
      fmt::format("{}dtrun --nproc_per_node={}", options.folder, options.ranks);
  const bool crowded = options.ranks > static_cast<int>(std::thread::hardware_concurrency());
  const std::string open_mpi =
      fmt::format("mpirun.openmpi --allow-run-as-root {} -np {}",
                  crowded ? "--oversubscribe" : "--bind-to core", options.ranks);
  std::vector<Contender> all = {
      {"dtrun", options.folder + "collective_dtrun", dtrun, {}},
      {"gloo", options.folder + "collective_gloo", dtrun, {}},
      {"Open MPI", options.folder + "collective_openmpi", open_mpi, {}},
      {"MPICH",
       options.folder + "collective_mpich",
       fmt::format("mpiexec.mpich -np {}", options.ranks),
       {}},
  };
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
  for (const std::size_t bytes : options.sizes)
    command += fmt::format(" {} {}", bytes, samples_of(bytes));
  return "OMP_NUM_THREADS=1 timeout 120 " + command + " </dev/null 2>&1";
}

void run_once(Contender& contender, const Options& options) {
  char folder[] = "/tmp/collective_bench.XXXXXX";
  if (::mkdtemp(folder) == nullptr) return;
  testing_support::Command command({"sh", "-c", command_of(contender, options, folder)},
                                   {.limit = std::chrono::minutes(3)});
  while (const auto line = command.next_line("")) {
    std::size_t bytes = 0;
    double least = 0;
    double median = 0;
    if (std::sscanf(line->c_str(), "%zu %lf %lf", &bytes, &least, &median) != 3) {
      fmt::print("{}: {}\n", contender.name, *line);
      continue;
    }
    Times& times = contender.times[bytes];
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
  fmt::print("{} ranks, f32 sum in place, {} rounds\n", options.ranks, options.rounds);
  fmt::print("{:>10}  {:<10}{:>12}{:>12}{:>20}\n", "bytes", "", "median us", "min us",
             "dtrun's part of it");
  for (const std::size_t bytes : options.sizes) {
    double own = 0;
    for (const Contender& contender : contenders) {
      const auto found = contender.times.find(bytes);
      if (found == contender.times.end()) continue;
      const double middle = median(found->second.medians);
      if (contender.name == "dtrun") own = middle;
      fmt::print("{:>10}  {:<10}{:>12.3f}{:>12.3f}{:>20.2f}\n", bytes, contender.name, middle,
                 found->second.least, own / middle);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  const std::string self = argv[0];
  options.folder = self.substr(0, self.rfind('/') + 1);
  if (options.folder.empty()) options.folder = "./";
  CLI::App app("How long does an f32 all_reduce take on one machine?");
  app.add_option("BYTES", options.sizes, "4, 64 KiB, 1 MiB and 16 MiB")->check(CLI::PositiveNumber);
  app.add_option("--ranks", options.ranks, "of each contender")->check(CLI::PositiveNumber);
  app.add_option("--rounds", options.rounds, "of which the median is told")
      ->check(CLI::PositiveNumber);
  app.add_option("--only", options.only, "this contender")->allow_extra_args(false);
  CLI11_PARSE(app, argc, argv);
  if (options.sizes.empty()) options.sizes = {4, 64 << 10, 1 << 20, 16 << 20};
  std::vector<Contender> contenders = make_contenders(options);
  for (int round = 0; round < options.rounds; ++round)
    for (Contender& contender : contenders) run_once(contender, options);
  print_table(contenders, options);
}
