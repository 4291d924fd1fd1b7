// A plan's steps with what they mean, send and cost. Pure.
#pragma once

#include <string>
#include <vector>

#include "dtrun/dtensor/plan/explanation.h"

namespace dtrun::dtensor {

/// @param question whose mesh, links and rank count; its layouts are not looked at
ExplainedRoute route_of(const PlanQuestion& question, std::string name,
                        const std::vector<Step>& steps);

/// Of a way to another mesh that costs `seconds`, where the one that is taken costs `least`: "1.5x
/// slower".
std::string why_crossing_lost(double seconds, double least);

}  // namespace dtrun::dtensor
