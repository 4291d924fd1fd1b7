// One seed, played once.
#pragma once

#include <cstdint>
#include <string>

#include "world.h"

namespace dtrun::simulation {

struct Result {
  std::uint64_t hash = 0;
  Tally tally;
  std::string rule;  ///< the one that was broken; empty: none
  std::string text;

  bool is_clean() const { return rule.empty(); }
};

Result simulate(std::uint64_t seed, Trace::Output output = Trace::Output::kHashOnly);

}  // namespace dtrun::simulation
