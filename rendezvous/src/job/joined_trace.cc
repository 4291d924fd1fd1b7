// Several nodes' traces as one: what is between their clocks.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/rendezvous/flight_trace.h"
#include "job/trace_calls.h"

namespace dtrun::rendezvous {
namespace {

using base::Error;
using base::ErrorCode;

void demand_one_round(const std::vector<FlightTrace>& parts) {
  const char* const remedy = "name the files that the nodes have written of one round";
  if (parts.empty())
    throw Error(ErrorCode::kInvalidArgument, "there is no trace to join", "", remedy);
  std::set<int> ranks;
  for (const FlightTrace& part : parts) {
    if (part.job != parts.front().job || part.round != parts.front().round)
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("traces of round {} of job '{}' and of round {} of job '{}' cannot be "
                      "joined",
                      parts.front().round, parts.front().job, part.round, part.job),
          "", remedy);
    if (part.clocks.empty())
      throw Error(ErrorCode::kInvalidArgument, "a trace does not say whose clock it has", "",
                  remedy);
    for (const RankTrace& rank : part.ranks)
      if (!ranks.insert(rank.rank).second)
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("rank {} stands in two of the traces", rank.rank), "", remedy);
  }
}

/// What may be added to a node's times: no rank ends a collective before another has begun it.
struct Bounds {
  std::int64_t least = std::numeric_limits<std::int64_t>::min();
  std::int64_t most = std::numeric_limits<std::int64_t>::max();

  bool known() const {
    return least != std::numeric_limits<std::int64_t>::min() &&
           most != std::numeric_limits<std::int64_t>::max();
  }
  /// Where the clocks' rates differ, the bounds of different times cross: between them is best.
  std::int64_t middle() const { return least + (most - least) / 2; }
  std::int64_t uncertainty() const { return std::abs(most - least) - std::abs(most - least) / 2; }
};

/// By the index of the part: bounds of what its times lack to the first part's.
std::map<int, Bounds> bounds_of(const FlightTrace& all, const std::vector<int>& part_of_rank) {
  std::map<int, Bounds> bounds;
  const TraceCalls calls(all);
  for (const std::vector<TracePlace>& meeting : calls.meetings()) {
    // By the part: the last to begin and the first to end.
    struct Span {
      std::int64_t begun = std::numeric_limits<std::int64_t>::min();
      std::int64_t ended = std::numeric_limits<std::int64_t>::max();
    };
    std::map<int, Span> spans;
    for (const TracePlace& place : meeting) {
      const Operation& operation = all.ranks[place.rank].operations[place.operation].operation;
      Span& span = spans[part_of_rank[place.rank]];
      span.begun = std::max(span.begun, operation.started_ns);
      span.ended = std::min(span.ended, operation.ended_ns);
    }
    const auto first = spans.find(0);
    if (first == spans.end()) continue;
    for (const auto& [part, span] : spans) {
      if (part == 0) continue;
      Bounds& known = bounds[part];
      known.least = std::max(known.least, first->second.begun - span.ended);
      known.most = std::min(known.most, first->second.ended - span.begun);
    }
  }
  return bounds;
}

void shift(RankTrace& rank, std::int64_t by_ns) {
  rank.until_ns += by_ns;
  for (HistoryEntry& entry : rank.operations) {
    entry.operation.started_ns += by_ns;
    if (entry.operation.ended_ns != 0) entry.operation.ended_ns += by_ns;
  }
}

}  // namespace

FlightTrace joined(std::vector<FlightTrace> parts) {
  demand_one_round(parts);
  FlightTrace all;
  all.job = parts.front().job;
  all.round = parts.front().round;
  std::vector<int> part_of_rank;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    all.world_size = std::max(all.world_size, parts[i].world_size);
    if (all.cause.empty()) all.cause = parts[i].cause;
    for (RankTrace& rank : parts[i].ranks) {
      all.ranks.push_back(std::move(rank));
      part_of_rank.push_back(static_cast<int>(i));
    }
  }
  const std::map<int, Bounds> bounds = bounds_of(all, part_of_rank);
  std::vector<std::int64_t> shifts(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto found = bounds.find(static_cast<int>(i));
    const bool by_collectives = found != bounds.end() && found->second.known();
    if (i > 0)
      shifts[i] = by_collectives
                      ? found->second.middle()
                      : parts[i].clocks.front().epoch_ns - parts.front().clocks.front().epoch_ns;
    for (TraceClock clock : parts[i].clocks) {
      clock.shift_ns += shifts[i];
      clock.epoch_ns -= shifts[i];
      if (i > 0)
        clock.uncertainty_ns =
            by_collectives ? std::optional(found->second.uncertainty()) : std::nullopt;
      all.clocks.push_back(clock);
    }
  }
  for (std::size_t i = 0; i < all.ranks.size(); ++i)
    shift(all.ranks[i], shifts[static_cast<std::size_t>(part_of_rank[i])]);
  std::ranges::sort(all.ranks, {}, &RankTrace::rank);
  return all;
}

}  // namespace dtrun::rendezvous
