// The limits of a job's cost table: each pair of ways that a limit divides is measured over sizes,
// by all_reduces in worlds whose tables send all of them the one way or the other.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "dtrun/collectives/cost_table.h"

namespace dtrun::bench {

/// The size up to which the first way is to be taken so that the times of all sizes are the least,
/// as ratios; 0: the second way everywhere.
/// @param sizes ascending @param first, second a time above 0 for each size
std::size_t best_limit(std::span<const std::size_t> sizes, std::span<const double> first,
                       std::span<const double> second);

/// Where the job's ranks are.
struct JobPlace {
  int ranks = 1;
  int machines = 1;
};

/// Collective over the job: p50 of an all_reduce of each size, in a world with these limits. Where
/// the rank is not 0 any values above 0.
using TimesWith = std::function<std::vector<double>(const collectives::WayLimits& limits,
                                                    std::span<const std::size_t> sizes)>;

/// The limits that the times speak for; those that the job's ranks cannot measure are the defaults.
collectives::WayLimits measure_limits(const JobPlace& place, const TimesWith& times);

}  // namespace dtrun::bench
