// How fast is the store's server? dtrun's beside PyTorch's and beside one that only sends fixed
// answers, which is as fast as the machine goes; one load generator in C++, all in one run, taking
// turns.
//
// store_bench --help says how. Prints medians, bests (the machine may be busy otherwise), and the
// ratios. PyTorch's server asks the resolver for the name of every peer; that is stubbed out here
// and said so.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "store_contender.h"
#include "store_floor.h"
#include "store_load.h"

namespace dtrun::bench {
namespace {

struct Options {
  int rounds = 5;
  std::string torch;
  std::string only;  // measures whose names contain it
  bool quick = false;
};

enum class Better { kMore, kLess };

struct Measure {
  std::string name;
  Better better;
  bool can_be_echoed;
  std::function<double(const StoreContender&)> take;
  /// Slow with PyTorch's server, or of use with a fresh one only.
  enum class Rounds { kAll, kOneOfPyTorch, kOne } rounds = Rounds::kAll;
};

using Contenders = std::vector<std::unique_ptr<StoreContender>>;

std::vector<Measure> measures(bool quick) {
  std::vector<Measure> all;
  all.push_back({"memory of an idle connection, bytes", Better::kLess, false,
                 [](const StoreContender& server) { return bytes_per_idle_connection(server); },
                 Measure::Rounds::kOne});
  for (const int in_flight : {1, 16, 64})
    all.push_back({fmt::format("set+wait+get, {} in flight, 1000 op/s", in_flight), Better::kMore,
                   true, [=](const StoreContender& server) {
                     return operations_per_second(server, in_flight, quick ? 0.2 : 0.5) / 1e3;
                   }});
  for (const int connections : {2, 100, 1000, 4000, 8000})
    all.push_back(
        {fmt::format("round trip among {} connections, us", connections), Better::kLess, true,
         [=](const StoreContender& server) { return round_trip_us(server, connections, 3000); }});
  for (const int connections : {2, 100, 1000, 4000, 8000})
    all.push_back({fmt::format("on one core, among {}, us", connections), Better::kLess, true,
                   [=](const StoreContender& server) {
                     const OneCore core(server);
                     return round_trip_us(server, connections, 3000);
                   }});
  all.push_back({"8000 connects with first answer, ms", Better::kLess, true,
                 [](const StoreContender& server) { return connect_seconds(server, 8000) * 1e3; }});
  for (const Acknowledge how : {Acknowledge::kAtOnce, Acknowledge::kWhenTheyAsk})
    all.push_back({fmt::format("4000 released, ACK {}, ms",
                               how == Acknowledge::kAtOnce ? "at once" : "with next request"),
                   Better::kLess, true,
                   [=](const StoreContender& server) { return release_ms(server, 4000, how); }});
  for (const int keys : {1000, 10'000, 131'072})
    all.push_back({fmt::format("MULTI_GET of {} keys, ms", keys), Better::kLess, true,
                   [=](const StoreContender& server) {
                     return multi_get_ms(server, keys, keys > 10'000 ? 1 : 5);
                   },
                   keys > 10'000 ? Measure::Rounds::kOneOfPyTorch : Measure::Rounds::kAll});
  return all;
}

Contenders start_contenders(const Options& options, const std::string& self) {
  const std::string folder = self.substr(0, self.rfind('/') + 1);
  Contenders contenders;
  const auto add = [&](auto&&... arguments) {
    contenders.push_back(std::make_unique<StoreContender>(arguments...));
  };
  using Command = std::vector<std::string>;
  add("dtrun", StoreContender::Speaks::kStore, Command{self, "--serve", "dtrun"});
  add("echo", StoreContender::Speaks::kEcho, Command{self, "--serve", "echo"});
  const std::string python = options.torch + "/bin/python";
  if (::access(python.c_str(), X_OK) != 0) {
    fmt::print("no PyTorch at '{}': left out (--torch names its folder)\n", options.torch);
    return contenders;
  }
  add("PyTorch", StoreContender::Speaks::kStore,
      Command{python, DTRUN_BENCH_FOLDER "/store_torch.py"},
      std::map<std::string, std::optional<std::string>>{
          {"LD_PRELOAD", folder + "../lib/libnumeric_names.so"}});
  fmt::print("PyTorch's look-ups of its peers' names are stubbed out.\n");
  return contenders;
}

using Figures = std::vector<std::vector<double>>;

double typical(const Measure&, std::vector<double> figures) {
  std::sort(figures.begin(), figures.end());
  return figures[figures.size() / 2];
}

double best(const Measure& measure, std::vector<double> figures) {
  std::sort(figures.begin(), figures.end());
  return measure.better == Better::kLess ? figures.front() : figures.back();
}

// A figure of each contender, and how dtrun's stands to the others'.
template <typename Choice>
std::string columns(const Measure& measure, const Figures& figures, Choice choice) {
  std::string row;
  for (const auto& each : figures)
    row +=
        each.empty() ? fmt::format("{:>10}", "-") : fmt::format("{:>10.4g}", choice(measure, each));
  for (std::size_t i = 1; i < figures.size(); ++i) {
    if (figures[i].empty()) {
      row += fmt::format("{:>10}", "-");
      continue;
    }
    const double ratio = choice(measure, figures[0]) / choice(measure, figures[i]);
    row += fmt::format("{:>9.2f}x", measure.better == Better::kLess ? 1 / ratio : ratio);
  }
  return row;
}

void compare(const Measure& measure, const Contenders& contenders, int rounds) {
  Figures figures(contenders.size());
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      const StoreContender& server = *contenders[i];
      if (server.is_echo() && !measure.can_be_echoed) continue;
      if (round > 0 && measure.rounds == Measure::Rounds::kOne) continue;
      if (round > 0 && measure.rounds == Measure::Rounds::kOneOfPyTorch &&
          server.name() == "PyTorch")
        continue;
      figures[i].push_back(measure.take(server));
    }
  fmt::print("{:<41}{} |{}\n", measure.name, columns(measure, figures, typical),
             columns(measure, figures, best));
  std::fflush(stdout);
}

void print_head(const Contenders& contenders) {
  std::string columns;
  for (const auto& server : contenders) columns += fmt::format("{:>10}", server->name());
  for (std::size_t i = 1; i < contenders.size(); ++i)
    columns += fmt::format("{:>10}", "/" + contenders[i]->name());
  fmt::print("{:<41}{:<{}} | best\n{:<41}{} |{}\n", "", "  median", columns.size(), "", columns,
             columns);
}

// What no server can be below, measured in the same run.
void print_floor(int rounds) {
  const auto median_of = [&](Cores cores) {
    std::vector<double> figures;
    for (int i = 0; i < rounds; ++i) figures.push_back(bare_round_trip_us(3000, cores));
    std::sort(figures.begin(), figures.end());
    return figures[figures.size() / 2];
  };
  const double apart = median_of(Cores::kAsTheyCome), together = median_of(Cores::kOne);
  fmt::print(
      "\nround trip of two processes that only send and receive: {:.1f} us, on one core "
      "{:.1f} us\n",
      apart, together);
}

std::string load_average() {
  std::ifstream file("/proc/loadavg");
  std::string one, five;
  file >> one >> five;
  return fmt::format("{} (1 min), {} (5 min)", one, five);
}

constexpr const char* kDescription =
    R"(dtrun's store server beside PyTorch's and one that only echoes.

Prints medians, bests, and the ratios; above 1 they are in dtrun's favour. "on one core" binds the
load generator and all threads of the server to one core: the work of a round trip, without the
waking of another core. "echo" sends to those it releases by as many threads as there are cores.
Released is who has its answer in its socket; "ACK at once" are clients that have not asked anything
for a while, as PyTorch's, "with next request" such that say so before they wait, as dtrun's.
)";

void run(const Options& options, const std::string& self) {
  raise_descriptor_limit();
  const Contenders contenders = start_contenders(options, self);
  fmt::print("{} rounds; load average {}\n\n", options.rounds, load_average());
  print_head(contenders);
  for (const Measure& measure : measures(options.quick))
    if (measure.name.find(options.only) != std::string::npos)
      compare(measure, contenders, options.rounds);
  print_floor(options.rounds);
  fmt::print("load average {}; a ratio above 1 is in dtrun's favour\n", load_average());
}

}  // namespace
}  // namespace dtrun::bench

int main(int argc, char** argv) {
  using namespace dtrun::bench;
  Options options;
  if (const char* home = std::getenv("HOME"))
    options.torch = std::string(home) + "/.cache/dtrun/torch-2.11.0";
  std::string serve;
  CLI::App app(kDescription, "store_bench");
  app.add_option("--rounds", options.rounds, "how often each is measured, in turns")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--torch", options.torch,
                 "a virtual environment with PyTorch (tests/lab/torch-up makes it); without one it "
                 "is left out")
      ->capture_default_str();
  app.add_option("--only", options.only, "only the measures whose names contain this");
  app.add_flag("--quick", options.quick, "shorter measures");
  // Of this program's own servers.
  app.add_option("--serve", serve)->check(CLI::IsMember({"echo", "dtrun"}))->group("");
  CLI11_PARSE(app, argc, argv);
  if (serve.empty()) {
    run(options, argv[0]);
    return 0;
  }
  raise_descriptor_limit();
  serve == "echo" ? serve_echo() : serve_dtrun();
}
