// The exhaustive search: every order in which a few agents and their head can act, with a few
// faults, over the same step() as production. Breadth first, so that the first violation has the
// shortest way. Time is abstract: it moves on only when nothing is under way, from deadline to
// deadline, and all deadlines are multiples of one unit, so that equal situations are equal states.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dtrun::simulation {

struct SearchScope {
  int nodes = 3;
  int min_nodes = 2;
  int max_nodes = 3;
  int restarts = 1;
  int failures = 1;  ///< of a node's workers
  int crashes = 1;   ///< of an agent, but for the head's
  int losses = 1;    ///< of a connection, seen by both ends at different times
  int rejoins = 1;   ///< of agents that crashed
  int pauses = 0;    ///< of an agent
  std::uint64_t most_states = 10'000'000;
};

struct SearchResult {
  std::uint64_t states = 0;
  std::uint64_t transitions = 0;
  std::uint64_t ends = 0;  ///< states in which everybody has come to an end
  int depth = 0;
  bool complete = false;  ///< there is nothing beyond
  std::string rule;       ///< the one that was broken; empty: none
  std::string text;
  std::vector<std::string> way;  ///< to the violation
};

SearchResult search(const SearchScope& scope);

}  // namespace dtrun::simulation
