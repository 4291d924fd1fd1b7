// How long do collectives take on one machine? dtrun's cpu backend beside gloo, PyTorch and MPIs,
// all in one run, taking turns, so that the machine's moods hit all alike.
//
//     collective_bench [--ranks N,...] [--rounds R] [--mpi DIR] [--torch PYTHON] [--tcp]
//                      [--lab DIR] [--bound | --unbound] [--svg FILE] [--only NAME]...
//                      [--operation NAME]... [BYTES]...
//
// --ranks 2,4,8: a table for each. --mpi: the MPIs of that folder (openmpi, mpich, intel) in place
// of the system's; the build must have had -DDTRUN_MPI_DIR=DIR. --torch: PyTorch over gloo, of that
// python. --tcp: dtrun, gloo, PyTorch and Open MPI by TCP over the loopback alone. --lab: the same
// over the network of two hosts, half of the ranks on each: DIR is tests/lab/slurm, where hosts-up
// 2 and hosts-sshd 1 2 have been called. Where there is a core for each rank, all contenders' ranks
// are bound to one each, else Intel MPI's alone, which take turns at the cores unasked; --bound:
// the ranks of all do; --unbound: none is bound. --svg: the plot of dtrun-bench, with a line for
// each contender. Default: 2 ranks, 7 rounds, all operations, 8 B, 4 KiB, 64 KiB, 1 MiB, 16 MiB,
// f32. One operation comes after the other. A round starts every contender once, each by its own
// launcher; dtrun-bench's loop measures all of them, and for PyTorch one like it. The table has the
// medians of the rounds' medians and of their 99th percentiles, the least time of all, dtrun's part
// of the contender's median, how much of the bound the median reaches, and, at dtrun, whether its
// median is the first or who is before it. Where a contender has no such call, or does not come
// back from it, the table says so. Every call's result is checked. A contender that is not
// installed is named.
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
  bench::PeerOptions peers;  ///< the ranks are those of the table that is made
  std::vector<int> ranks = {2};
  int rounds = 7;
  std::vector<std::string> operations;
  std::vector<std::size_t> sizes;
  std::string svg;
};

/// An operation and its bytes.
using Cell = std::pair<std::string, std::size_t>;

std::vector<Cell> cells_of(const Options& options, const std::string& operation) {
  if (operation == "barrier") return {{operation, 0}};
  std::vector<Cell> cells;
  for (const std::size_t bytes : options.sizes) cells.emplace_back(operation, bytes);
  return cells;
}

std::vector<Cell> cells_of(const Options& options) {
  std::vector<Cell> all;
  for (const std::string& operation : options.operations)
    for (Cell& cell : cells_of(options, operation)) all.push_back(std::move(cell));
  return all;
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
  std::map<std::string, std::string> absent;  ///< operation to why there are no times
};

/// In seconds, for all sizes of an operation.
constexpr int kPatience = 120;

/// As many as take some tenths of a second.
int samples_of(std::size_t bytes) {
  if (bytes <= 4096) return 200;
  if (bytes <= 256 << 10) return 400;
  if (bytes <= 4 << 20) return 100;
  return 12;
}

/// A line of a contender's (collective_contender.h).
void take_line(Contender& contender, const std::string& line) {
  std::istringstream words(line);
  std::string first;
  words >> first;
  if (first == "absent") {
    std::string operation, reason;
    words >> operation >> std::ws;
    std::getline(words, reason);
    contender.absent[operation] = reason;
    return;
  }
  Cell cell{first, 0};
  double least = 0, median = 0, p99 = 0, bound = 0;
  if (!(words >> cell.second >> least >> median >> p99 >> bound)) {
    fmt::print("{}: {}\n", contender.peer.name, line);
    return;
  }
  Times& times = contender.times[cell];
  times.medians.push_back(median);
  times.p99s.push_back(p99);
  times.bounds.push_back(bound);
  times.least = std::min(times.least, least);
}

/// All sizes of the operation, unless it was seen before that the contender cannot.
void run_once(Contender& contender, const Options& options, const std::string& operation) {
  if (contender.absent.contains(operation)) return;
  char folder[] = "/tmp/collective_bench.XXXXXX";
  if (::mkdtemp(folder) == nullptr) return;
  std::string calls;
  for (const auto& [name, bytes] : cells_of(options, operation))
    calls += fmt::format(" {} {} {}", name, bytes, samples_of(bytes));
  const std::string command =
      bench::command_of(contender.peer, options.peers, calls, folder, kPatience);
  testing_support::Command running({"sh", "-c", "exec </dev/null 2>&1; " + command},
                                   {.limit = std::chrono::seconds(kPatience + 60)});
  while (const auto line = running.next_line(""))
    if (!line->empty()) take_line(contender, *line);
  constexpr int kTimedOut = 124;  // timeout(1)'s
  if (const int code = running.finish().exit_code; code != 0)
    contender.absent[operation] = code == kTimedOut
                                      ? fmt::format("it has not come back within {} s", kPatience)
                                      : fmt::format("it has failed with exit code {}", code);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

const Times* times_in(const Contender& contender, const Cell& cell) {
  const auto found = contender.times.find(cell);
  return found == contender.times.end() ? nullptr : &found->second;
}

bool is_dtrun(const Contender& contender) {
  return contender.peer.name == "dtrun" || contender.peer.name == "in place";
}

struct Place {
  double own = 0;       ///< dtrun's median; 0: there is none
  double best = 1e300;  ///< of the peers
  std::string who;      ///< empty: no peer has any
  bool is_first() const { return own <= best; }
  std::string to_string() const {
    if (who.empty()) return "alone";
    return is_first() ? "first" : fmt::format("behind {}: {:.2f}", who, own / best);
  }
};

Place place_in(const std::vector<Contender>& contenders, const Cell& cell) {
  Place place;
  for (const Contender& contender : contenders) {
    const Times* const times = times_in(contender, cell);
    if (times == nullptr) continue;
    const double middle = median(times->medians);
    if (contender.peer.name == "dtrun") place.own = middle;
    if (is_dtrun(contender) || middle >= place.best) continue;
    place.best = middle;
    place.who = contender.peer.name;
  }
  return place;
}

void print_row(const Contender& contender, const Cell& cell, const Place& place) {
  const std::string name =
      fmt::format("{:<15}{:>10}  {:<10}", cell.first, cell.second, contender.peer.name);
  const Times* const times = times_in(contender, cell);
  if (times == nullptr) {
    const auto why = contender.absent.find(cell.first);
    fmt::print("{}  none: {}\n", name,
               why == contender.absent.end() ? "it has printed no time" : why->second);
    return;
  }
  const double middle = median(times->medians);
  const double bound = median(times->bounds);
  fmt::print("{}{:>12.3f}{:>12.3f}{:>12.3f}{:>20}{:>8}  {}\n", name, middle, median(times->p99s),
             times->least, place.own > 0 ? fmt::format("{:.2f}", place.own / middle) : "-",
             bound > 0 ? fmt::format("{:.0f}%", 100 * bound / middle) : "-",
             contender.peer.name == "dtrun" ? place.to_string() : "");
}

void print_table(const std::vector<Contender>& contenders, const Options& options) {
  constexpr const char* kBindings[] = {"", ", bound to cores", ", unbound"};
  fmt::print("{} ranks, f32, {} rounds{}\n", options.peers.ranks, options.rounds,
             kBindings[static_cast<int>(options.peers.binding)]);
  fmt::print("{:<15}{:>10}  {:<10}{:>12}{:>12}{:>12}{:>20}{:>8}  {}\n", "", "bytes", "",
             "median us", "p99 us", "min us", "dtrun's part of it", "bound", "place");
  int cells = 0, first = 0;
  std::string behind;
  for (const Cell& cell : cells_of(options)) {
    const Place place = place_in(contenders, cell);
    for (const Contender& contender : contenders) print_row(contender, cell, place);
    if (place.own == 0 || place.who.empty()) continue;
    ++cells;
    if (place.is_first())
      ++first;
    else
      behind += fmt::format("  {} {}: {}\n", cell.first, cell.second, place.to_string());
  }
  if (cells > 0)
    fmt::print("with {} ranks dtrun is first in {} of {} cells{}\n{}", options.peers.ranks, first,
               cells, behind.empty() ? "" : ", and", behind);
  std::fflush(stdout);
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
    row.bound = median(found->second.bounds);
    report.rows.push_back(row);
  }
  return report;
}

void read_arguments(CLI::App& app, Options& options) {
  bench::PeerOptions& peers = options.peers;
  app.add_option("BYTES", options.sizes, "8, 4 KiB, 64 KiB, 1 MiB and 16 MiB")
      ->check(CLI::PositiveNumber);
  app.add_option("--ranks", options.ranks, "of each contender: 2,4,8 makes a table for each")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  app.add_option("--rounds", options.rounds, "of which the median is told")
      ->check(CLI::PositiveNumber);
  app.add_option("--mpi", peers.mpi, "a folder of MPIs in place of the system's")
      ->check(CLI::ExistingDirectory);
  app.add_option("--torch", peers.torch, "a python with PyTorch, which is measured over gloo")
      ->check(CLI::ExistingFile);
  app.add_flag_callback(
      "--tcp", [&peers] { peers.network = bench::Network::tcp; }, "by TCP over the loopback");
  app.add_option("--lab", peers.lab, "by TCP between the two hosts of that folder's hosts-up")
      ->check(CLI::ExistingDirectory);
  CLI::Option* const bound = app.add_flag_callback(
      "--bound", [&peers] { peers.binding = bench::CoreBinding::bound; },
      "the ranks of all contenders take turns at the cores, also where there are few");
  app.add_flag_callback(
         "--unbound", [&peers] { peers.binding = bench::CoreBinding::unbound; },
         "no contender's ranks are bound to cores")
      ->excludes(bound);
  app.add_option("--svg", options.svg, "a plot of busbw over size");
  app.add_option("--only", peers.only, "this contender")->allow_extra_args(false);
  app.add_option("--operation", options.operations, "this one, as dtrun-bench calls it")
      ->allow_extra_args(false);
}

/// @return what is wrong with the options; empty: nothing
std::string mistake_in(const Options& options) {
  if (!options.svg.empty() && options.ranks.size() > 1)
    return "--svg draws one table: --ranks must be one number";
  for (const int ranks : options.ranks)
    if (!options.peers.lab.empty() && ranks % 2 != 0)
      return "--lab puts half of the ranks on each of two hosts: --ranks must be even";
  return "";
}

void run_all(std::vector<Contender>& contenders, const Options& options) {
  for (const std::string& operation : options.operations)
    for (int round = 0; round < options.rounds; ++round)
      for (Contender& contender : contenders) run_once(contender, options, operation);
}

/// @return whether it could be written
bool draw(const std::vector<Contender>& contenders, const Options& options) {
  std::vector<bench::Report> reports;
  for (const Contender& contender : contenders) reports.push_back(report_of(contender, options));
  try {
    base::write_file_atomically(options.svg, bench::svg_of(reports));
    return true;
  } catch (const base::Error& error) {
    fmt::print("{}\n", error.what());
    return false;
  }
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
  if (!options.peers.lab.empty()) options.peers.network = bench::Network::tcp;
  if (const std::string mistake = mistake_in(options); !mistake.empty()) {
    fmt::print("{}\n", mistake);
    return 64;
  }
  if (options.sizes.empty()) options.sizes = {8, 4 << 10, 64 << 10, 1 << 20, 16 << 20};
  if (options.operations.empty())
    for (const bench::Operation operation : bench::all_operations())
      options.operations.emplace_back(bench::operation_name(operation));
  for (const int ranks : options.ranks) {
    options.peers.ranks = ranks;
    std::vector<Contender> contenders;
    for (bench::Peer& peer : bench::peers_of(options.peers))
      contenders.push_back({std::move(peer), {}, {}});
    run_all(contenders, options);
    print_table(contenders, options);
    if (!options.svg.empty() && !draw(contenders, options)) return 1;
  }
}
