// Words that explanations have in common.
#pragma once

#include <boost/json/array.hpp>
#include <string>
#include <vector>

#include "dtrun/dtensor/plan/explanation.h"

namespace dtrun::dtensor {

/// "3.0 us".
std::string duration_text(double seconds);
/// "(dp=2, tp=2)", or "(2, 2)" where the axes have no names.
std::string mesh_text(const std::vector<int>& shape, const std::vector<std::string>& names);
/// The steps as a table, with a line for the head.
std::string steps_text(const PlanQuestion& question, const ExplainedRoute& route,
                       const std::string& margin);

/// The ways that lost, as a table; empty where nothing is sent.
std::string alternatives_text(const PlanExplanation& explanation, const std::string& margin);

inline boost::json::array json_list(const auto& values) {
  boost::json::array list;
  for (const auto& value : values) list.emplace_back(value);
  return list;
}

}  // namespace dtrun::dtensor
