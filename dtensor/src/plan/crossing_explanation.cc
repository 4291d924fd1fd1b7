#include "dtrun/dtensor/plan/crossing_explanation.h"

#include <fmt/core.h>

#include <functional>
#include <numeric>
#include <utility>

#include "dtrun/base/error.h"
#include "layout/mesh_coordinate.h"
#include "plan/explained_route.h"

namespace dtrun::dtensor {
namespace {

std::int64_t item_bytes_of(const CrossingQuestion& question) {
  return static_cast<std::int64_t>(tensors::item_size(question.dtype));
}

PlacedLayout placed(const CrossingSide& side, const Layout& layout) {
  std::vector<int> ranks(static_cast<std::size_t>(side.ranks()));
  std::iota(ranks.begin(), ranks.end(), side.first_rank);
  return {side.mesh_shape, std::move(ranks), layout};
}

/// Steps on one of the meshes.
ExplainedRoute route_on(const CrossingSide& side, const CrossingQuestion& question,
                        const std::vector<Step>& steps) {
  const bool has_rank = side.has(question.rank);
  const PlanQuestion on_mesh{
      .shape = question.shape,
      .dtype = question.dtype,
      .mesh_shape = side.mesh_shape,
      .axis_names = side.axis_names,
      .from = side.layout,
      .to = side.layout,
      .links = side.links,
      .coordinate = coordinate_in(side.mesh_shape, has_rank ? question.rank - side.first_rank : 0)};
  ExplainedRoute route = route_of(on_mesh, "", steps);
  if (has_rank) return route;
  route.traffic = {};
  for (ExplainedStep& step : route.steps) step.traffic = {};
  return route;
}

ExplainedCrossMesh explained(const CrossingQuestion& question, const CrossMeshPlan& plan) {
  ExplainedCrossMesh way{.plan = plan,
                         .before = route_on(question.from, question, plan.before),
                         .messages = BoxMessages(question.shape, placed(question.from, plan.given),
                                                 placed(question.to, plan.wanted))
                                         .traffic(question.rank),
                         .after = route_on(question.to, question, plan.after),
                         .traffic = {},
                         .why = {}};
  way.messages.sent *= item_bytes_of(question);
  way.messages.received *= item_bytes_of(question);
  for (const Traffic& part : {way.before.traffic, way.messages, way.after.traffic})
    way.traffic += part;
  return way;
}

void check_rank(const CrossingQuestion& question) {
  if (question.from.has(question.rank) || question.to.has(question.rank)) return;
  const auto ranks = [](const CrossingSide& side) {
    return fmt::format("{} to {}", side.first_rank, side.first_rank + side.ranks() - 1);
  };
  throw base::Error(base::ErrorCode::kInvalidArgument,
                    fmt::format("rank {} is in neither mesh", question.rank),
                    fmt::format("the first one's ranks are {}, the second one's {}",
                                ranks(question.from), ranks(question.to)),
                    "one of these");
}

}  // namespace

std::string why_crossing_lost(double seconds, double least) {
  if (least == 0 && seconds > 0) return "sends what need not be sent";
  const double ratio = least > 0 ? seconds / least : 1;
  return ratio >= 1.05 ? fmt::format("{:.1f}x slower", ratio) : "no faster";
}

int CrossingSide::ranks() const {
  return std::accumulate(mesh_shape.begin(), mesh_shape.end(), 1, std::multiplies<>());
}

CrossingExplanation explain_crossing(CrossingQuestion question) {
  check_rank(question);
  const PlacedLayout from = placed(question.from, question.from.layout),
                     to = placed(question.to, question.to.layout);
  const std::int64_t item_bytes = item_bytes_of(question);
  CrossingExplanation explanation;
  for (const CrossMeshPlan& plan : cross_mesh_ways(question.shape, from, to, item_bytes,
                                                   question.from.links, question.to.links)) {
    explanation.alternatives.push_back(explained(question, plan));
    ExplainedCrossMesh& way = explanation.alternatives.back();
    way.why = why_crossing_lost(way.plan.cost.seconds,
                                explanation.alternatives.front().plan.cost.seconds);
    for (const Placement& placement : placements_of({plan.given, plan.wanted}))
      explanation.held.push_back(placement);
  }
  explanation.chosen = std::move(explanation.alternatives.front());
  explanation.chosen.why.clear();
  explanation.alternatives.erase(explanation.alternatives.begin());
  explanation.memory = crossing_memory(question.shape, from, to, explanation.chosen.plan,
                                       HostImages::none, question.rank, item_bytes);
  for (const Placement& placement : placements_of({from.layout, to.layout}))
    explanation.held.push_back(placement);
  explanation.question = std::move(question);
  return explanation;
}

}  // namespace dtrun::dtensor
