// Which bug is planted in the simulation's own copy of the round logic (rendezvous/src/
// planted_bug.h), and their names.
#pragma once

#include <string_view>
#include <vector>

#include "rounds/planted_bug.h"

namespace dtrun::simulation {

/// While it lives that bug is in the code under test. One at a time, one thread.
class Planting {
 public:
  explicit Planting(rendezvous::rounds::PlantedBug bug);
  ~Planting();
  Planting(const Planting&) = delete;
  Planting& operator=(const Planting&) = delete;
};

enum class Origin {
  kInvented,
  kReal,  ///< it was in the code until the simulator or the search found it
};
struct PlantedBugName {
  rendezvous::rounds::PlantedBug bug;
  std::string_view name;
  std::string_view meaning;
  Origin origin = Origin::kInvented;
};
const std::vector<PlantedBugName>& planted_bugs();

}  // namespace dtrun::simulation
