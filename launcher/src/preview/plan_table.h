// PlanTable: --dry-run for people: what describe_plan() says, as text. Pure.
#pragma once

#include <boost/json/object.hpp>
#include <string>

namespace dtrun::launcher {

/// @param plan of describe_plan()
std::string plan_table(const boost::json::object& plan);

}  // namespace dtrun::launcher
