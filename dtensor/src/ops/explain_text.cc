#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <ostream>

#include "dtrun/dtensor/ops/explain.h"
#include "layout/text_table.h"
#include "plan/explanation_text.h"

namespace dtrun::dtensor {
namespace {

using boost::json::array;
using boost::json::object;

/// More would hide what matters.
constexpr std::size_t kMostLosers = 4;

std::string tensor_text(const ExplainedArgument& argument) {
  return std::string(tensors::dtype_short_name(argument.dtype)) +
         tensors::shape_to_string(argument.shape);
}

std::string along(const Step& step, const std::vector<std::string>& axis_names) {
  return std::string(step_kind_name(step.kind)) + " along " + step.along(axis_names);
}

/// "reduce_scatter along dp, then messages to the other mesh".
std::string steps_across(const CrossMeshPlan& plan, const ExplainedCrossing& crossing) {
  std::string text;
  for (const Step& step : plan.before) text += along(step, crossing.from_axis_names) + ", then ";
  text += "messages to the other mesh";
  for (const Step& step : plan.after) text += ", then " + along(step, crossing.to_axis_names);
  return text;
}

std::string steps_text(const ExplainedArgument& argument) {
  if (argument.crossing) return steps_across(argument.crossing->plan, *argument.crossing);
  if (argument.entry) return argument.entry->steps;
  std::string text;
  for (const ExplainedStep& item : argument.way->chosen.steps)
    text += (text.empty() ? "" : ", then ") + along(item.step, argument.way->question.axis_names);
  return text;
}

/// "48 bytes", and what its transports send where that is another number.
std::string bytes_text(std::int64_t sent, std::int64_t carried) {
  return grouped_digits(sent) + " bytes" +
         (carried == sent ? "" : " (" + grouped_digits(carried) + " by its transports)");
}

/// "[R, S(1)] by all_to_all along tp: 48 bytes, 3.0 us".
std::string way_text(const ExplainedArgument& argument) {
  if (argument.blocks)
    return "its dim " + std::to_string(argument.blocks->dim) + " moves by all_to_all along " +
           argument.blocks->along + ": " + grouped_digits(argument.traffic().sent) + " bytes, " +
           duration_text(argument.cost().seconds);
  if (!argument.way && !argument.crossing && !argument.entry) return "as it is";
  return "to " + argument.wanted.to_string() + " by " + steps_text(argument) + ": " +
         bytes_text(argument.traffic().sent, argument.carried()) + ", " +
         duration_text(argument.cost().seconds);
}

std::string memory_text(const PlanMemory& memory) {
  return "This rank has " + grouped_digits(memory.before) + " bytes of tensors' memory before, " +
         grouped_digits(memory.after) + " after, and at most " + grouped_digits(memory.peak) +
         " at once.";
}

/// The ways that lost, of a redistribution alone: under an operator they would hide its rules.
std::string other_ways_text(const ExplainedArgument& argument) {
  if (argument.way) return alternatives_text(*argument.way, "  ");
  if (!argument.crossing) return "";
  if (argument.crossing->alternatives.empty()) return "  Other ways: none that differs.\n";
  using Align = TextTable::Align;
  TextTable table({Align::left, Align::right, Align::right, Align::left});
  table.add({"other ways", "this rank sends", "predicted", "why not"});
  for (const ExplainedCrossingWay& way : argument.crossing->alternatives)
    table.add({steps_across(way.plan, *argument.crossing), grouped_digits(way.traffic.sent),
               duration_text(way.plan.cost.seconds), way.why});
  return table.text("  ");
}

std::string call_text(const ExplainedCall& call) {
  std::string text = call.op;
  if (!call.part_of.empty()) text += " (part of " + call.part_of + ")";
  text += " gives " + call.output + "\n";
  using Align = TextTable::Align;
  TextTable arguments({Align::left, Align::left, Align::left, Align::left});
  for (std::size_t i = 0; i < call.arguments.size(); ++i) {
    const ExplainedArgument& argument = call.arguments[i];
    arguments.add({"argument " + std::to_string(i + 1), tensor_text(argument),
                   argument.entry ? argument.entry->whose : argument.now.to_string(),
                   way_text(argument)});
  }
  text += arguments.text("  ");
  for (const ExplainedArgument& argument : call.arguments)
    if (argument.crossing) text += "  " + memory_text(argument.crossing->memory) + "\n";
  if (call.axes.empty())
    for (const ExplainedArgument& argument : call.arguments) text += other_ways_text(argument);
  TextTable rules({Align::left, Align::left, Align::right, Align::left});
  for (const ExplainedAxis& axis : call.axes) {
    rules.add({"along " + axis.name, axis.taken.rule, duration_text(axis.taken.seconds), "taken"});
    for (std::size_t i = 0; i < axis.lost.size() && i < kMostLosers; ++i) {
      const ExplainedRule& rule = axis.lost[i];
      std::string fate = rule.is_tried ? "lost" : "not tried";
      if (i + 1 == kMostLosers && axis.lost.size() > kMostLosers)
        fate += ", and " + std::to_string(axis.lost.size() - kMostLosers) + " more";
      rules.add({"", rule.rule, duration_text(rule.seconds), fate});
    }
  }
  return text + rules.text("  ");
}

object rule_json(const ExplainedRule& rule) {
  return object{{"rule", rule.rule}, {"seconds", rule.seconds}, {"tried", rule.is_tried}};
}

object crossing_json(const ExplainedArgument& argument) {
  array others;
  for (const ExplainedCrossingWay& way : argument.crossing->alternatives)
    others.push_back(object{{"steps", steps_across(way.plan, *argument.crossing)},
                            {"bytes_sent", way.traffic.sent},
                            {"bytes_received", way.traffic.received},
                            {"seconds", way.plan.cost.seconds},
                            {"why_not", way.why}});
  return object{{"steps", steps_text(argument)},
                {"bytes_sent", argument.traffic().sent},
                {"bytes_received", argument.traffic().received},
                {"bytes_before", argument.crossing->memory.before},
                {"bytes_after", argument.crossing->memory.after},
                {"peak_bytes", argument.crossing->memory.peak},
                {"seconds", argument.cost().seconds},
                {"alternatives", std::move(others)}};
}

/// Of what is no redistribution.
object brief_json(const ExplainedArgument& argument, const std::string& steps) {
  return object{{"steps", steps},
                {"bytes_sent", argument.traffic().sent},
                {"bytes_received", argument.traffic().received},
                {"seconds", argument.cost().seconds}};
}

object call_json(const ExplainedCall& call) {
  array arguments, axes;
  for (const ExplainedArgument& argument : call.arguments) {
    object one{{"tensor", tensor_text(argument)},
               {"now", argument.entry ? argument.entry->whose : argument.now.to_string()},
               {"wanted", argument.wanted.to_string()}};
    if (argument.crossing) one["way"] = crossing_json(argument);
    if (argument.blocks)
      one["way"] = brief_json(argument, "all_to_all along " + argument.blocks->along);
    if (argument.entry) one["way"] = brief_json(argument, argument.entry->steps);
    if (argument.way) one["way"] = boost::json::parse(argument.way->to_json());
    arguments.push_back(std::move(one));
  }
  for (const ExplainedAxis& axis : call.axes) {
    array lost;
    for (const ExplainedRule& rule : axis.lost) lost.push_back(rule_json(rule));
    axes.push_back(
        object{{"axis", axis.name}, {"taken", rule_json(axis.taken)}, {"lost", std::move(lost)}});
  }
  return object{{"op", call.op},
                {"part_of", call.part_of},
                {"output", call.output},
                {"arguments", std::move(arguments)},
                {"axes", std::move(axes)}};
}

}  // namespace

PlanCost ExplainedArgument::cost() const {
  if (blocks) return blocks->cost;
  if (entry) return entry->cost;
  if (crossing) return crossing->plan.cost;
  return way ? way->chosen.cost : PlanCost();
}

Traffic ExplainedArgument::traffic() const {
  if (blocks) return blocks->traffic;
  if (entry) return entry->traffic;
  if (crossing) return crossing->traffic;
  return way ? way->chosen.traffic : Traffic();
}

std::int64_t ExplainedArgument::carried() const {
  return way && way->carried ? *way->carried : traffic().sent;
}

int CallsExplanation::collectives() const {
  int count = 0;
  for (const ExplainedCall& call : calls) {
    for (const ExplainedArgument& argument : call.arguments) count += argument.cost().collectives;
  }
  return count;
}

std::int64_t CallsExplanation::bytes_sent() const {
  std::int64_t bytes = 0;
  for (const ExplainedCall& call : calls) {
    for (const ExplainedArgument& argument : call.arguments) bytes += argument.traffic().sent;
  }
  return bytes;
}

std::int64_t CallsExplanation::bytes_carried() const {
  std::int64_t bytes = 0;
  for (const ExplainedCall& call : calls) {
    for (const ExplainedArgument& argument : call.arguments) bytes += argument.carried();
  }
  return bytes;
}

double CallsExplanation::seconds() const {
  double seconds = 0;
  for (const ExplainedCall& call : calls) {
    for (const ExplainedArgument& argument : call.arguments) seconds += argument.cost().seconds;
  }
  return seconds;
}

std::string CallsExplanation::to_string() const {
  std::string text;
  for (const ExplainedCall& call : calls) text += call_text(call) + "\n";
  const int count = collectives();
  return text + std::to_string(count) + " collective" + (count == 1 ? "" : "s") +
         ". This rank sends " + bytes_text(bytes_sent(), bytes_carried()) +
         ". Predicted: " + duration_text(seconds()) + ".\n";
}

std::string CallsExplanation::to_json() const {
  array list;
  for (const ExplainedCall& call : calls) list.push_back(call_json(call));
  return boost::json::serialize(object{{"calls", std::move(list)},
                                       {"collectives", collectives()},
                                       {"bytes_sent", bytes_sent()},
                                       {"bytes_carried", bytes_carried()},
                                       {"seconds", seconds()}});
}

std::ostream& operator<<(std::ostream& out, const CallsExplanation& explanation) {
  return out << explanation.to_string();
}

}  // namespace dtrun::dtensor
