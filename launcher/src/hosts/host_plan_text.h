// HostPlanText: --dry-run of a job on several hosts. No host is asked. Pure.
#pragma once

#include <boost/json/object.hpp>
#include <string>

#include "hosts/host_plan.h"

namespace dtrun::launcher {

/// Of the environment only the names are shown, because a value may be a token.
boost::json::object describe_host_plan(const HostPlan& plan);
std::string host_plan_text(const HostPlan& plan);

}  // namespace dtrun::launcher
