// PlanDescription: --dry-run, the whole plan as JSON. What only the start decides (a free port, the
// run id of a job without a name, ranks that the rendezvous gives out) is null, and in the ranks'
// environment a text between '<' and '>'. No other machine is asked.
#pragma once

#include <boost/json/object.hpp>
#include <string>

#include "plan/launch_plan.h"

namespace dtrun::launcher {

/// @param environment dtrun's own: told is what the ranks have that it has not
/// @param host this machine's name
boost::json::object describe_plan(const LaunchPlan& plan, const base::Environment& environment,
                                  const std::string& host);

}  // namespace dtrun::launcher
