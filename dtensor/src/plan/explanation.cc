#include "dtrun/dtensor/plan/explanation.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "dtrun/base/error.h"
#include "layout/text_table.h"
#include "plan/explained_route.h"

namespace dtrun::dtensor {
namespace {

/// None for what no step does.
std::optional<StepKind> kind_between(const Placement& before, const Placement& after) {
  if (before.is_replicate()) {
    return after.is_shard() ? StepKind::local_chunk : StepKind::to_partial;
  }
  if (after.is_partial()) return std::nullopt;
  if (before.is_shard() && after.is_shard(before.dim())) return std::nullopt;
  if (before.is_shard()) return after.is_shard() ? StepKind::all_to_all : StepKind::all_gather;
  return after.is_shard() ? StepKind::reduce_scatter : StepKind::all_reduce;
}

/// The axes before `axis` that cut its target's dim.
std::vector<std::size_t> cutters(const Layout& layout, std::size_t axis, int dim) {
  std::vector<std::size_t> axes;
  for (std::size_t before = 0; before < axis; ++before) {
    if (layout.is_shard(before) && layout.dim(before) == dim) axes.push_back(before);
  }
  return axes;
}

/// PyTorch's default: from the last axis to the first, over Replicate where an axis further out is
/// in the way; then what is left, from the first on. None where it does not know the step.
std::optional<std::vector<Step>> axis_by_axis(const PlanQuestion& question) {
  const Layout &from = question.from, &to = question.to;
  if (from != Layout(from.placements()) || to != Layout(to.placements())) return std::nullopt;
  std::vector<Step> steps;
  Layout now = from;
  const auto change = [&](std::size_t axis, const Placement& after) {
    if (now[axis] == after) return true;
    const std::optional<StepKind> kind = kind_between(now[axis], after);
    if (!kind || (now.is_shard(axis) && !now.is_innermost(axis))) return false;
    Layout next = now;
    next.set(axis, after);
    if (!has_ragged_outermost(next)) return false;
    steps.push_back({*kind, static_cast<int>(axis), now, next});
    now = next;
    return true;
  };
  for (std::size_t axis = now.axes(); axis-- > 0;) {
    const bool is_blocked =
        to.is_shard(axis) && cutters(now, axis, to.dim(axis)) != cutters(to, axis, to.dim(axis));
    if (!change(axis, is_blocked ? Replicate() : to[axis])) return std::nullopt;
  }
  for (std::size_t axis = 0; axis < now.axes(); ++axis) {
    if (!change(axis, to[axis])) return std::nullopt;
  }
  if (now != to) return std::nullopt;
  return steps;
}

std::vector<Step> planned(const PlanQuestion& question, const Layout& from, const Layout& to,
                          const CostModel& costs) {
  return plan_redistribute(question.shape, question.mesh_shape, from, to, costs);
}

/// As if each collective, or each byte, cost nothing.
std::vector<Step> planned_with(const PlanQuestion& question, LinkRate link) {
  const std::vector<LinkRate> links(question.mesh_shape.size(), link);
  return planned(question, question.from, question.to, {question.item_bytes(), links});
}

std::string why_it_lost(const ExplainedRoute& route, const ExplainedRoute& chosen) {
  std::string causes;
  const auto because = [&](const std::string& cause) {
    causes += (causes.empty() ? ": " : ", ") + cause;
  };
  const std::int64_t bytes = route.mesh.busiest.sent - chosen.mesh.busiest.sent;
  if (bytes > 0) because(grouped_digits(bytes) + " bytes more to send");
  const int more = route.cost.collectives - chosen.cost.collectives;
  if (more > 0) because(fmt::format("{} collective{} more", more, more == 1 ? "" : "s"));
  if (causes.empty()) because("more to copy or to wait for");
  const double ratio = route.cost.seconds / chosen.cost.seconds;
  if (ratio >= 1.05) return fmt::format("{:.1f}x slower", ratio) + causes;
  return ratio >= 1 ? "a little slower" + causes
                    : "not looked for: the whole takes microseconds either way";
}

void append_alternative(PlanExplanation& explanation, std::string name,
                        const std::vector<Step>& steps) {
  const auto is_same = [&](const ExplainedRoute& route) {
    return std::ranges::equal(route.steps, steps, [](const ExplainedStep& a, const Step& b) {
      return a.step.axis == b.axis && a.step.kind == b.kind && a.step.after == b.after;
    });
  };
  if (is_same(explanation.chosen)) return;
  for (ExplainedRoute& known : explanation.alternatives) {
    if (!is_same(known)) continue;
    known.name += ", and " + name;
    return;
  }
  ExplainedRoute route = route_of(explanation.question, std::move(name), steps);
  route.why = why_it_lost(route, explanation.chosen);
  explanation.alternatives.push_back(std::move(route));
}

void append_alternatives(PlanExplanation& explanation) {
  const PlanQuestion& question = explanation.question;
  if (explanation.chosen.cost.collectives == 0) return;
  if (const auto steps = axis_by_axis(question)) {
    append_alternative(explanation, "axis by axis (PyTorch's way)", *steps);
  }
  append_alternative(explanation, "fewest collectives", planned_with(question, {1, 1e300}));
  append_alternative(explanation, "fewest bytes", planned_with(question, {1e-12, 1}));
  const Layout whole = Layout::whole(question.mesh_shape.size());
  std::vector<Step> over = planned(question, question.from, whole, question.costs());
  std::ranges::copy(planned(question, whole, question.to, question.costs()),
                    std::back_inserter(over));
  append_alternative(explanation, "over Replicate on every axis", over);
  std::ranges::stable_sort(explanation.alternatives, {}, &ExplainedRoute::cost);
}

void check_coordinate(PlanQuestion& question) {
  if (question.coordinate.empty()) question.coordinate.assign(question.mesh_shape.size(), 0);
  bool fits = question.coordinate.size() == question.mesh_shape.size();
  for (std::size_t axis = 0; fits && axis < question.mesh_shape.size(); ++axis) {
    fits = question.coordinate[axis] >= 0 && question.coordinate[axis] < question.mesh_shape[axis];
  }
  if (fits) return;
  throw base::Error(base::ErrorCode::kInvalidArgument, "the mesh has no such rank",
                    "the coordinate does not lie in it",
                    "a coordinate from 0 to the size of each axis - 1");
}

}  // namespace

std::int64_t PlanQuestion::item_bytes() const {
  return static_cast<std::int64_t>(tensors::item_size(dtype));
}

std::vector<Step> ExplainedRoute::plan() const {
  std::vector<Step> plan;
  for (const ExplainedStep& step : steps) plan.push_back(step.step);
  return plan;
}

PlanExplanation explain_plan(PlanQuestion question) {
  check_coordinate(question);
  PlanExplanation explanation;
  explanation.question = std::move(question);
  const PlanQuestion& asked = explanation.question;
  explanation.chosen = route_of(asked, "", planned(asked, asked.from, asked.to, asked.costs()));
  explanation.memory = plan_memory(asked.shape, asked.mesh_shape, asked.from,
                                   explanation.chosen.plan(), asked.coordinate, asked.item_bytes());
  append_alternatives(explanation);
  explanation.held = placements_of({asked.from, asked.to});
  return explanation;
}

}  // namespace dtrun::dtensor
