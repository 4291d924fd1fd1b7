#include "search.h"

#include <algorithm>
#include <utility>

#include "fingerprint.h"
#include "search_world.h"
#include "violation.h"

namespace dtrun::simulation {
namespace {

// Of the second search, which keeps whole situations, for the shortest way to a violation.
constexpr std::uint64_t kMostForTheShortestWay = 1'000'000;

class Search {
 public:
  explicit Search(const SearchScope& scope) : scope_(scope) {}

  // Depth first: beside the fingerprints only the situations of one way are kept.
  SearchResult run() {
    begin();
    push(SearchWorld(scope_));
    while (!way_.empty()) {
      Step& step = way_.back();
      if (step.next == step.moves.size()) {
        way_.pop_back();
        continue;
      }
      SearchWorld after = step.world;
      if (!make(after, step.moves[step.next++])) return std::move(result_);
      if (!seen_.insert(after.fingerprint())) continue;
      if (++result_.states >= scope_.most_states) return std::move(result_);
      push(std::move(after));
    }
    result_.complete = true;
    return std::move(result_);
  }

  // Breadth first: the first violation has the shortest way.
  SearchResult run_for_the_shortest_way() {
    begin();
    std::vector<SearchWorld> level{SearchWorld(scope_)};
    while (!level.empty()) {
      std::vector<SearchWorld> next;
      for (const SearchWorld& world : level)
        if (!expand(world, next)) return std::move(result_);
      level = std::move(next);
    }
    return std::move(result_);
  }

 private:
  struct Step {
    SearchWorld world;
    std::vector<SearchMove> moves;
    std::size_t next = 0;
  };

  void begin() {
    seen_.insert(SearchWorld(scope_).fingerprint());
    result_.states = 1;
  }

  void push(SearchWorld world) {
    std::vector<SearchMove> moves;
    if (world.is_over())
      ++result_.ends;
    else
      moves = world.moves();
    way_.push_back({std::move(world), std::move(moves)});
    result_.depth = std::max(result_.depth, static_cast<int>(way_.size()) - 1);
  }

  // False: it breaks a rule.
  bool make(SearchWorld& world, const SearchMove& move) {
    ++result_.transitions;
    try {
      world.make(move);
      return true;
    } catch (const Violation& violation) {
      result_.rule = violation.rule();
      result_.text = violation.what();
      result_.way = world.way();
      for (const Step& step : way_)
        result_.way.push_back(SearchWorld::describe(step.moves[step.next - 1]));
      return false;
    }
  }

  // Whether to go on.
  bool expand(const SearchWorld& world, std::vector<SearchWorld>& next) {
    if (world.is_over()) return true;
    for (const SearchMove& move : world.moves()) {
      SearchWorld after = world;
      after.remember(SearchWorld::describe(move));
      if (!make(after, move)) return false;
      if (!seen_.insert(after.fingerprint())) continue;
      next.push_back(std::move(after));
      if (++result_.states >= kMostForTheShortestWay) return false;
    }
    return true;
  }

  const SearchScope scope_;
  SearchResult result_;
  FingerprintSet seen_;
  std::vector<Step> way_;
};

}  // namespace

SearchResult search(const SearchScope& scope) {
  SearchResult result = Search(scope).run();
  if (result.rule.empty()) return result;
  const SearchResult shortest = Search(scope).run_for_the_shortest_way();
  if (shortest.rule.empty()) return result;
  result.rule = shortest.rule;
  result.text = shortest.text;
  result.way = shortest.way;
  return result;
}

}  // namespace dtrun::simulation
