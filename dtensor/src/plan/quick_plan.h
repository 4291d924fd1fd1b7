// quick_plan(): a plan for a choice among many.
#pragma once

#include <vector>

#include "dtrun/dtensor/plan/redistribute_plan.h"

namespace dtrun::dtensor {

/// plan_redistribute(), but on four axes and more a plan may cost more than the cheapest one: there
/// the search for that may take milliseconds.
std::vector<Step> quick_plan(const tensors::Shape& global_shape, const std::vector<int>& mesh_shape,
                             const Layout& from, const Layout& to, const CostModel& costs);

}  // namespace dtrun::dtensor
