#include "plan/explained_route.h"

#include <fmt/core.h>

#include <utility>

namespace dtrun::dtensor {
namespace {

std::string meaning_of(const Step& step) {
  const auto axis = static_cast<std::size_t>(step.axis);
  const Placement before = step.before[axis], after = step.after[axis];
  const auto op = [](const Placement& partial) {
    return collectives::reduce_op_name(partial.reduce_op());
  };
  switch (step.kind) {
    case StepKind::all_gather:
      return fmt::format("collect the chunks of dim {}", before.dim());
    case StepKind::all_to_all:
      return fmt::format("trade chunks of dim {} for chunks of dim {}", before.dim(), after.dim());
    case StepKind::all_reduce:
      return fmt::format("reduce by {}; all get the result", op(before));
    case StepKind::reduce_scatter:
      return fmt::format("reduce by {}; each gets its chunk of dim {}", op(before), after.dim());
    case StepKind::exchange:
      return "give each other rank what it lacks, in one collective";
    case StepKind::local_chunk:
      return fmt::format("keep one's own chunk of dim {}", after.dim());
    case StepKind::to_partial:
      return fmt::format("become a term of the {}", op(after));
    case StepKind::relabel:
      break;
  }
  return "another name for the same, on an axis of one rank";
}

}  // namespace

ExplainedRoute route_of(const PlanQuestion& question, std::string name,
                        const std::vector<Step>& steps) {
  ExplainedRoute route;
  route.name = std::move(name);
  const CostModel costs = question.costs();
  const std::vector<Traffic> traffic = plan_traffic(question.shape, question.mesh_shape, steps,
                                                    question.coordinate, costs.item_bytes);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const PlanCost cost = plan_cost(question.shape, question.mesh_shape, {steps[i]}, costs);
    route.steps.push_back({steps[i], cost.seconds, traffic[i], meaning_of(steps[i])});
    route.cost += cost;
    route.traffic += traffic[i];
  }
  route.mesh = mesh_traffic(question.shape, question.mesh_shape, steps, costs.item_bytes);
  return route;
}

}  // namespace dtrun::dtensor
