// How long do collectives take on one machine? dtrun's cpu backend beside gloo and MPIs, all in one
// run, taking turns, so that the machine's moods hit all alike.
//
//     collective_bench [--ranks N] [--rounds R] [--mpi DIR] [--tcp] [--lab DIR] [--svg FILE]
//                      [--only NAME]... [--operation NAME]... [BYTES]...
//
// --mpi: the MPIs of that folder (openmpi, mpich, intel) in place of the system's; the build must
// have had -DDTRUN_MPI_DIR=DIR.
// --tcp: dtrun, gloo and Open MPI by TCP over the loopback alone. --lab: the same over the network
// of two hosts, half of the ranks on each: DIR is tests/lab/slurm, where hosts-up 2 and hosts-sshd 1 2 have been called.
// --svg: the plot of dtrun-bench, with a line for each contender.
// Default: 2 ranks, 7 rounds, all operations, 8 B, 4 KiB, 64 KiB, 1 MiB, 16 MiB, f32. A round
// starts every contender once, each by its own launcher; dtrun-bench's loop measures all of them.
// The table has the medians of the rounds' medians and of their 99th percentiles, the least time of
// all, dtrun's part of the contender's median, and how much of the bound the median reaches. Every
// call's result is checked. A contender that is not installed is named.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "bench/plot.h"
#include "collective_peers.h"
#include "dtrun/base/error.h"
#include "dtrun/base/json.h"
#include "support/command.h"

using namespace dtrun;

namespace {

struct Options {
  bench::PeerOptions peers;
  int rounds = 7;
  std::vector<std::string> operations;
  std::vector<std::size_t> sizes;
  std::string svg;
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

/// In microseconds, one of each round.
struct Times {
  std::vector<double> medians;
  std::vector<double> p99s;
  std::vector<double> bounds;  ///< 0: none
  double least = 1e300;
};

struct Contender {
  bench::Peer peer;
  std::map<Cell, Times> times;
};

/// As many as take some tenths of a second.
int samples_of(std::size_t bytes) {
  if (bytes <= 4096) return 200;
  if (bytes <= 256 << 10) return 400;
  if (bytes <= 4 << 20) return 100;
  return 12;
}

void run_once(Contender& contender, const Options& options) {
  char folder[] = "/tmp/collective_bench.XXXXXX";
  if (::mkdtemp(folder) == nullptr) return;
  std::string calls;
  for (const auto& [operation, bytes] : cells_of(options))
    calls += fmt::format(" {} {} {}", operation, bytes, samples_of(bytes));
  const std::string command = bench::command_of(contender.peer, options.peers, calls, folder);
  testing_support::Command running({"sh", "-c", "exec </dev/null 2>&1; " + command},
                                   {.limit = std::chrono::minutes(3)});
  while (const auto line = running.next_line("")) {
    Cell cell;
    double least = 0, median = 0, p99 = 0, bound = 0;
    std::istringstream words(*line);
    if (line->empty()) continue;
    if (!(words >> cell.first >> cell.second >> least >> median >> p99 >> bound)) {
      fmt::print("{}: {}\n", contender.peer.name, *line);
      continue;
    }
    Times& times = contender.times[cell];
    times.medians.push_back(median);
    times.p99s.push_back(p99);
    times.bounds.push_back(bound);
    times.least = std::min(times.least, least);
  }
  if (running.finish().exit_code != 0) fmt::print("{} failed\n", contender.peer.name);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void print_table(const std::vector<Contender>& contenders, const Options& options) {
  fmt::print("{} ranks, f32, {} rounds\n", options.peers.ranks, options.rounds);
  fmt::print("{:<15}{:>10}  {:<10}{:>12}{:>12}{:>12}{:>20}{:>8}\n", "", "bytes", "", "median us",
             "p99 us", "min us", "dtrun's part of it", "bound");
  for (const Cell& cell : cells_of(options)) {
    double own = 0;
    for (const Contender& contender : contenders) {
      const auto found = contender.times.find(cell);
      if (found == contender.times.end()) continue;
      const Times& times = found->second;
      const double middle = median(times.medians);
      if (contender.peer.name == "dtrun") own = middle;
      const double bound = median(times.bounds);
      fmt::print("{:<15}{:>10}  {:<10}{:>12.3f}{:>12.3f}{:>12.3f}{:>20.2f}{:>8}\n", cell.first,
                 cell.second, contender.peer.name, middle, median(times.p99s), times.least,
                 own / middle,
                 bound > 0 ? fmt::format("{:.0f}%", 100 * bound / middle) : std::string("-"));
    }
  }
}

/// What dtrun-bench would tell of that contender, its times those of the table.
bench::Report report_of(const Contender& contender, const Options& options) {
  bench::Report report{
      .backend = contender.peer.name, .device = "cpu", .ranks = options.peers.ranks, .rows = {}};
  for (const Cell& cell : cells_of(options)) {
    const auto found = contender.times.find(cell);
    if (found == contender.times.end()) continue;
    const bench::Call asked{.operation = bench::parse_operation(cell.first)};
    bench::ReportRow row{.call = bench::call_of_size(asked, cell.second, report.ranks),
                         .ranks = report.ranks,
                         .measured = {}};
    row.measured.mean = row.measured.p50 = median(found->second.medians);
    if (const double bound = median(found->second.bounds); bound > 0)
      row.copy_bandwidth = bench::bytes_moved(row.call, report.ranks) / (bound * 1e-6);
    report.rows.push_back(row);
  }
  return report;
}

void read_arguments(CLI::App& app, Options& options) {
  bench::PeerOptions& peers = options.peers;
  app.add_option("BYTES", options.sizes, "8, 4 KiB, 64 KiB, 1 MiB and 16 MiB")
      ->check(CLI::PositiveNumber);
  app.add_option("--ranks", peers.ranks, "of each contender")->check(CLI::PositiveNumber);
  app.add_option("--rounds", options.rounds, "of which the median is told")
      ->check(CLI::PositiveNumber);
  app.add_option("--mpi", peers.mpi, "a folder of MPIs in place of the system's")
      ->check(CLI::ExistingDirectory);
  app.add_flag_callback(
      "--tcp", [&peers] { peers.network = bench::Network::tcp; }, "by TCP over the loopback");
  app.add_option("--lab", peers.lab, "by TCP between the two hosts of that folder's hosts-up")
      ->check(CLI::ExistingDirectory);
  app.add_option("--svg", options.svg, "a plot of busbw over size");
  app.add_option("--only", peers.only, "this contender")->allow_extra_args(false);
  app.add_option("--operation", options.operations, "this one, as dtrun-bench calls it")
      ->allow_extra_args(false);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  const std::string self = argv[0];
  options.peers.folder = self.substr(0, self.rfind('/') + 1);
  if (options.peers.folder.empty()) options.peers.folder = "./";
  CLI::App app("How long do collectives take on one machine?");
  read_arguments(app, options);
  CLI11_PARSE(app, argc, argv);
  if (!options.peers.lab.empty()) {
    options.peers.network = bench::Network::tcp;
    if (options.peers.ranks % 2 != 0) {
      fmt::print("--lab puts half of the ranks on each of two hosts: --ranks must be even\n");
      return 64;
    }
  }
  if (options.sizes.empty()) options.sizes = {8, 4 << 10, 64 << 10, 1 << 20, 16 << 20};
  if (options.operations.empty())
    for (const bench::Operation operation : bench::all_operations())
      options.operations.emplace_back(bench::operation_name(operation));
  std::vector<Contender> contenders;
  for (bench::Peer& peer : bench::peers_of(options.peers))
    contenders.push_back({std::move(peer), {}});
  for (int round = 0; round < options.rounds; ++round)
    for (Contender& contender : contenders) run_once(contender, options);
  print_table(contenders, options);
  if (options.svg.empty()) return 0;
  std::vector<bench::Report> reports;
  for (const Contender& contender : contenders) reports.push_back(report_of(contender, options));
  try {
    base::write_file_atomically(options.svg, bench::svg_of(reports));
  } catch (const base::Error& error) {
    fmt::print("{}\n", error.what());
    return 1;
  }
}
