// round_simulator [--seeds A..B] [--seed S [--trace]] [--hours H] [--minutes M] [--bug NAME]:
// plays seeds of the simulator and prints what was played and what was broken.
//   --hours H    until so many hours of virtual time
//   --minutes M  until so many minutes of real time
//   --bug NAME   with that bug planted, until it is found; "list" lists them, "all" tries them all
#include <fmt/core.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planted.h"
#include "simulate.h"

namespace {

using namespace dtrun::simulation;
using Clock = std::chrono::steady_clock;

struct Options {
  std::uint64_t first = 1;
  std::uint64_t last = 1000;
  std::optional<std::uint64_t> seed;
  bool trace = false;
  double hours = 0;
  double minutes = 0;
  std::string bug;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double virtual_seconds(const Tally& tally) {
  return static_cast<double>(tally.virtual_time.count()) / 1e9;
}

void print_totals(std::uint64_t seeds, std::uint64_t twice, const Tally& tally, double real) {
  const double simulated = virtual_seconds(tally);
  fmt::print("seeds {} ({} of them twice, bit-equal), virtual {:.1f} h = {:.4f} cluster-years\n",
             seeds, twice, simulated / 3600, simulated / (365.25 * 86400));
  fmt::print("real {:.1f} s: {:.0f} times as fast; {} steps, {} messages\n", real, simulated / real,
             tally.steps, tally.messages);
  fmt::print(
      "rounds {}, restarts {}, heads {}; agents: {} succeeded, {} failed or stopped, {} "
      "never in\n",
      tally.rounds, tally.restarts, tally.heads, tally.succeeded, tally.failed, tally.never_in);
  std::int64_t faults = 0;
  for (const std::int64_t count : tally.faults) faults += count;
  fmt::print("faults {}:", faults);
  for (std::size_t i = 0; i < tally.faults.size(); ++i)
    fmt::print("{} {} {}", i == 0 ? "" : ",", fault_name(static_cast<Fault>(i)), tally.faults[i]);
  fmt::print("\n");
}

int play_many(const Options& options) {
  const auto start = Clock::now();
  Tally tally;
  std::uint64_t twice = 0;
  std::uint64_t seed = options.first;
  int broken = 0;
  const bool endless = options.hours > 0 || options.minutes > 0;
  for (; endless || seed <= options.last; ++seed) {
    if (options.hours > 0 && virtual_seconds(tally) >= options.hours * 3600) break;
    if (options.minutes > 0 && seconds_since(start) >= options.minutes * 60) break;
    const Result result = simulate(seed);
    tally.add(result.tally);
    if (!result.is_clean()) {
      fmt::print("seed {}: {}: {}\n", seed, result.rule, result.text);
      std::fflush(stdout);
      if (++broken == 20) break;
    }
    if (seed % 100 != 0) continue;
    ++twice;
    if (simulate(seed).hash != result.hash) {
      fmt::print("seed {}: the second run differs from the first\n", seed);
      ++broken;
    }
  }
  print_totals(seed - options.first, twice, tally, seconds_since(start));
  fmt::print("{} broken\n", broken);
  return broken == 0 ? 0 : 1;
}

int play_one(std::uint64_t seed, bool with_lines) {
  const Result result =
      simulate(seed, with_lines ? Trace::Output::kLines : Trace::Output::kHashOnly);
  fmt::print("seed {}: hash {:016x}, {}\n", seed, result.hash,
             result.is_clean() ? "clean" : result.rule + ": " + result.text);
  return result.is_clean() ? 0 : 1;
}

// One line of the table in docs/simulation.md.
int find_bug(const PlantedBugName& bug, const Options& options) {
  const Planting planting(bug.bug);
  const auto start = Clock::now();
  Tally tally;
  for (std::uint64_t seed = options.first;; ++seed) {
    if (options.minutes > 0 && seconds_since(start) >= options.minutes * 60) break;
    const Result result = simulate(seed);
    tally.add(result.tally);
    if (result.is_clean()) continue;
    fmt::print("| {} | {} | {} | {:.1f} h | {:.2f} s |\n", bug.name, result.rule, seed,
               virtual_seconds(tally) / 3600, seconds_since(start));
    std::fflush(stdout);
    return 0;
  }
  fmt::print("| {} | not found | {:.1f} h | {:.0f} s |\n", bug.name, virtual_seconds(tally) / 3600,
             seconds_since(start));
  std::fflush(stdout);
  return 1;
}

int find_bugs(const Options& options) {
  int missed = 0;
  bool known = false;
  for (const PlantedBugName& bug : planted_bugs()) {
    if (options.bug == "list") fmt::print("{}: {}\n", bug.name, bug.meaning);
    if (options.bug != "all" && options.bug != bug.name) continue;
    known = true;
    missed += find_bug(bug, options);
  }
  if (options.bug != "list" && !known) fmt::print("no bug is called {}\n", options.bug);
  return missed;
}

std::optional<Options> parse(int count, char** arguments) {
  Options options;
  const std::vector<std::string> words(arguments + 1, arguments + count);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool has_value = i + 1 < words.size();
    if (words[i] == "--trace") {
      options.trace = true;
    } else if (!has_value) {
      return std::nullopt;
    } else if (words[i] == "--seeds") {
      const std::string& range = words[++i];
      options.first = std::strtoull(range.c_str(), nullptr, 10);
      const std::size_t dots = range.find("..");
      options.last = dots == std::string::npos
                         ? options.first
                         : std::strtoull(range.c_str() + dots + 2, nullptr, 10);
    } else if (words[i] == "--seed") {
      options.seed = std::strtoull(words[++i].c_str(), nullptr, 10);
    } else if (words[i] == "--hours") {
      options.hours = std::strtod(words[++i].c_str(), nullptr);
    } else if (words[i] == "--minutes") {
      options.minutes = std::strtod(words[++i].c_str(), nullptr);
    } else if (words[i] == "--bug") {
      options.bug = words[++i];
    } else {
      return std::nullopt;
    }
  }
  return options;
}

}  // namespace

int main(int count, char** arguments) {
  const std::optional<Options> options = parse(count, arguments);
  if (!options) {
    fmt::print(stderr,
               "usage: round_simulator [--seeds A..B] [--seed S [--trace]] [--hours H] "
               "[--minutes M] [--bug NAME|list|all]\n");
    return 64;
  }
  if (options->seed) {
    for (const PlantedBugName& bug : planted_bugs())
      if (bug.name == options->bug) {
        const Planting planting(bug.bug);
        return play_one(*options->seed, options->trace);
      }
    return play_one(*options->seed, options->trace);
  }
  if (!options->bug.empty()) return find_bugs(*options);
  return play_many(*options);
}
