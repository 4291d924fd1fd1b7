#include "mesh/plan_table.h"

#include "mesh/crossing.h"
#include "mesh/mesh_body.h"

namespace dtrun::dtensor {

std::shared_ptr<const Crossing> PlanTable::crossing(const SpecBody* from,
                                                    const std::shared_ptr<MeshBody>& target,
                                                    const Layout& to) const {
  const auto found = crossings_.find(key_of(from, target.get(), to));
  if (found == crossings_.end()) return nullptr;
  const KnownCrossing& known = found->second;
  const bool holds = known.target_links == target->links_set &&
                     !known.target.owner_before(target) && !target.owner_before(known.target);
  return holds ? known.crossing : nullptr;
}

void PlanTable::note_crossing(const SpecBody* from, const std::shared_ptr<MeshBody>& target,
                              const Layout& to, std::shared_ptr<const Crossing> crossing) {
  if (crossings_.size() >= kMost) clear();
  crossings_.insert_or_assign(key_of(from, target.get(), to),
                              KnownCrossing{target, target->links_set, std::move(crossing)});
}

}  // namespace dtrun::dtensor
