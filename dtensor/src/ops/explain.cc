#include "dtrun/dtensor/ops/explain.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "autograd/rehearsed_graph.h"
#include "dispatch/choice_observer.h"
#include "dtrun/dtensor/autograd/random_state.h"
#include "mesh/crossing.h"
#include "mesh/mesh_body.h"
#include "move/carried.h"
#include "move/cause.h"
#include "move/move_observer.h"
#include "plan/explained_route.h"

namespace dtrun::dtensor {
namespace {

PlanQuestion question_on(const DeviceMesh& mesh, const Shape& shape, DType dtype,
                         const Layout& from, const Layout& to) {
  return {.shape = shape,
          .dtype = dtype,
          .mesh_shape = mesh.shape(),
          .axis_names = mesh.axis_names(),
          .from = from,
          .to = to,
          .links = mesh.body()->links,
          .coordinate = mesh.coordinate_of(std::max(0, mesh.rank()))};
}

PlanExplanation explained_on(const DeviceMesh& mesh, const Shape& shape, DType dtype,
                             const Layout& from, const Layout& to) {
  PlanExplanation explanation = explain_plan(question_on(mesh, shape, dtype, from, to));
  explanation.carried = bytes_to_carry(mesh, shape, dtype, explanation.chosen.plan());
  return explanation;
}

ExplainedArgument argument_on(const DeviceMesh& mesh, const Meta& meta, const Layout& from,
                              const Layout& to) {
  ExplainedArgument argument{meta.shape, meta.dtype, from, to, {}};
  if (from != to) argument.way = explained_on(mesh, meta.shape, meta.dtype, from, to);
  return argument;
}

std::string rule_text(const sharding::AxisRule& rule) {
  std::string text;
  for (const Placement& input : rule.inputs) {
    text += (text.empty() ? "" : ", ") + input.to_string();
  }
  return text + " -> " + rule.output.to_string();
}

ExplainedAxis explain_axis(const ChoiceMade& made, const std::vector<std::size_t>& taken,
                           std::size_t axis) {
  const std::vector<sharding::AxisRule>& rules = made.rules.rules();
  const auto weighed = [&](std::size_t rule) {
    std::vector<std::size_t> picked = taken;
    picked[axis] = rule;
    const PlanCost cost =
        sharding::cost_of_rules(made.rules.operation(), rules, picked, made.mesh.shape(),
                                made.layouts, made.mesh.body()->links);
    return ExplainedRule{rule_text(rules[rule]), cost.seconds,
                         sharding::is_tried(made.rules.operation(), rules, rule, axis,
                                            made.mesh.shape(), made.layouts)};
  };
  const std::vector<std::string>& names = made.mesh.axis_names();
  ExplainedAxis explained{
      names.empty() ? "axis " + std::to_string(axis) : names[axis], weighed(taken[axis]), {}};
  for (std::size_t rule = 0; rule < rules.size(); ++rule) {
    if (rule != taken[axis]) explained.lost.push_back(weighed(rule));
  }
  std::erase_if(explained.lost, [](const ExplainedRule& lost) { return std::isinf(lost.seconds); });
  std::ranges::stable_sort(explained.lost, {}, [](const ExplainedRule& lost) {
    return std::pair(!lost.is_tried, lost.seconds);
  });
  return explained;
}

ExplainedCrossing crossing_of(const CrossMovement& move) {
  const DeviceMesh from = move.from.mesh(), to = move.to.mesh();
  ExplainedCrossing crossing{.plan = move.plan,
                             .from_axis_names = from.axis_names(),
                             .to_axis_names = to.axis_names(),
                             .traffic = traffic_across(move.plan, move.from, move.to),
                             .memory = memory_across(move.plan, move.from, move.to),
                             .alternatives = {}};
  const std::vector<CrossMeshPlan> ways = cross_mesh_ways(
      move.from.shape(), placed(from, move.from.layout()), placed(to, move.to.layout()),
      static_cast<std::int64_t>(tensors::item_size(move.from.dtype())), from.body()->links,
      to.body()->links);
  // The cheapest is the one that is taken.
  for (std::size_t i = 1; i < ways.size(); ++i)
    crossing.alternatives.push_back(
        {.plan = ways[i],
         .traffic = traffic_across(ways[i], move.from, move.to),
         .why = why_crossing_lost(ways[i].cost.seconds, ways[0].cost.seconds)});
  return crossing;
}

ExplainedBlocks blocks_of(const BlockMovement& move) {
  const DeviceMesh mesh = move.spec.mesh();
  ExplainedBlocks blocks{.dim = move.dim, .along = {}, .traffic = move.traffic, .cost = {0, 1}};
  const auto bytes = static_cast<double>(std::max(move.busiest.sent, move.busiest.received));
  for (const std::size_t axis : move.axes) {
    const LinkRate& link = mesh.links()[axis];
    blocks.cost.seconds =
        std::max(blocks.cost.seconds, link.latency + bytes / link.bytes_per_second);
    blocks.along += blocks.along.empty() ? "" : " and ";
    blocks.along +=
        mesh.axis_names().empty() ? "axis " + std::to_string(axis) : mesh.axis_names()[axis];
  }
  return blocks;
}

/// Runs nothing that communicates, and notes what would.
class Rehearsal : public MoveObserver, public ChoiceObserver {
 public:
  bool only_rehearses() const override { return true; }

  bool on_move(const Movement& move) override {
    // An operator's operands have been noted with its choice.
    if (is_operand(move)) return false;
    const Layout &from = move.steps.front().before, &to = move.steps.back().after;
    ExplainedCall call;
    call.op = "redistribute";
    const Cause* const cause = Cause::outermost();
    if (cause != nullptr) call.part_of = cause->op();
    call.arguments = {argument_on(move.site.mesh, {move.site.global_shape, move.dtype}, from, to)};
    call.output = make_spec(move.site.mesh, to, move.site.global_shape, move.dtype).to_string();
    if (call.part_of == call.op) call.part_of.clear();
    explanation.calls.push_back(std::move(call));
    return false;
  }

  bool on_crossing(const CrossMovement& move) override {
    ExplainedCall call;
    call.op = "redistribute";
    const Cause* const cause = Cause::outermost();
    if (cause != nullptr && cause->op() != call.op) call.part_of = cause->op();
    call.arguments.push_back({.shape = move.from.shape(),
                              .dtype = move.from.dtype(),
                              .now = move.from.layout(),
                              .wanted = move.to.layout(),
                              .crossing = crossing_of(move)});
    call.output = move.to.to_string();
    explanation.calls.push_back(std::move(call));
    return false;
  }

  bool on_blocks(const BlockMovement& move) override {
    ExplainedCall call;
    call.op = Cause::innermost()->op();
    const Cause* const cause = Cause::outermost();
    if (cause->op() != call.op) call.part_of = cause->op();
    call.arguments.push_back({.shape = move.spec.shape(),
                              .dtype = move.spec.dtype(),
                              .now = move.spec.layout(),
                              .wanted = move.spec.layout(),
                              .blocks = blocks_of(move)});
    call.output = move.spec.to_string();
    explanation.calls.push_back(std::move(call));
    return false;
  }

  void on_entry(const EntryMovement& move) override {
    ExplainedCall call;
    call.op = Cause::innermost()->op();
    const Cause* const cause = Cause::outermost();
    if (cause->op() != call.op) call.part_of = cause->op();
    std::string steps;
    for (const std::string& step : move.steps) steps += (steps.empty() ? "" : ", then ") + step;
    const Layout& layout = move.spec.layout();
    call.arguments.push_back({.shape = move.spec.shape(),
                              .dtype = move.spec.dtype(),
                              .now = layout,
                              .wanted = layout,
                              .entry = {{move.whose, steps, move.traffic, move.cost}}});
    call.output = move.spec.to_string();
    explanation.calls.push_back(std::move(call));
  }

  void on_choice(const ChoiceMade& made) override {
    ExplainedCall call;
    call.op = made.op;
    const Cause* const cause = Cause::outermost();
    if (cause != nullptr && cause->op() != made.op) call.part_of = cause->op();
    const std::vector<sharding::Operand>& operands = made.rules.operation().inputs;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      call.arguments.push_back(argument_on(made.mesh, {operands[i].shape, operands[i].dtype},
                                           made.layouts[i], made.choice.inputs[i]));
    }
    call.output =
        make_spec(made.mesh, made.choice.output, made.output.shape, made.output.dtype).to_string();
    const std::vector<std::size_t> taken = sharding::rules_of(made.choice, made.rules.rules());
    for (std::size_t axis = 0; axis < taken.size(); ++axis) {
      call.axes.push_back(explain_axis(made, taken, axis));
    }
    explanation.calls.push_back(std::move(call));
  }

  CallsExplanation explanation;

 private:
  static bool is_operand(const Movement&) {
    const Cause* const cause = Cause::innermost();
    return cause != nullptr && cause->argument() >= 0;
  }
};

}  // namespace

PlanExplanation explain(const Tensor& x, const Placements& placements, const ShardOrder& order) {
  const DeviceMesh mesh = x.device_mesh();
  const Layout to = make_layout(x.shape(), mesh.shape(), placements, order);
  return explained_on(mesh, x.shape(), x.dtype(), x.spec().layout(), to);
}

CallsExplanation explain(const std::function<void()>& function) {
  const RandomScope scope(random_state());
  const RehearsedGraph graph;
  Rehearsal rehearsal;
  function();
  return std::move(rehearsal.explanation);
}

CallsExplanation explain(const Tensor& x, const DeviceMesh& mesh, const Placements& placements,
                         const ShardOrder& order) {
  return explain([&] { x.redistribute(mesh, placements, order); });
}

}  // namespace dtrun::dtensor
