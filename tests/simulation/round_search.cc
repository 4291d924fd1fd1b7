// round_search [--NAME VALUE]...: the exhaustive search by hand. NAME is a number of SearchScope
// (nodes, min, max, restarts, failures, crashes, losses, rejoins, pauses, states), or bug.
#include <fmt/core.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>

#include "planted.h"
#include "search.h"

namespace {

using namespace dtrun::simulation;

int run(const SearchScope& scope) {
  const auto start = std::chrono::steady_clock::now();
  const SearchResult result = search(scope);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("{} states, {} transitions, {} ends, depth {}, {}, {:.1f} s\n", result.states,
             result.transitions, result.ends, result.depth,
             result.complete ? "complete" : "not complete", seconds);
  if (result.rule.empty()) return 0;
  for (const std::string& step : result.way) fmt::print("  {}\n", step);
  fmt::print("{}: {}\n", result.rule, result.text);
  return 1;
}

}  // namespace

int main(int count, char** arguments) {
  SearchScope scope;
  const std::map<std::string, int*> numbers = {
      {"--nodes", &scope.nodes},       {"--min", &scope.min_nodes},
      {"--max", &scope.max_nodes},     {"--restarts", &scope.restarts},
      {"--failures", &scope.failures}, {"--crashes", &scope.crashes},
      {"--losses", &scope.losses},     {"--rejoins", &scope.rejoins},
      {"--pauses", &scope.pauses}};
  std::optional<Planting> planting;
  if (count % 2 == 0) {
    fmt::print(stderr, "round_search [--NAME NUMBER]... [--bug NAME]: {} has no value\n",
               arguments[count - 1]);
    return 64;
  }
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string name = arguments[i];
    if (const auto found = numbers.find(name); found != numbers.end()) {
      *found->second = std::atoi(arguments[i + 1]);
    } else if (name == "--states") {
      scope.most_states = std::strtoull(arguments[i + 1], nullptr, 10);
    } else if (name == "--bug") {
      for (const PlantedBugName& bug : planted_bugs())
        if (bug.name == arguments[i + 1]) planting.emplace(bug.bug);
      if (!planting) {
        fmt::print(stderr, "round_search knows no bug {}\n", arguments[i + 1]);
        return 64;
      }
    } else {
      fmt::print(stderr, "round_search does not know {}\n", name);
      return 64;
    }
  }
  return run(scope);
}
