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

/// "[R, S(1)] by all_to_all along tp: 48 bytes, 3.0 us".
std::string way_text(const ExplainedArgument& argument) {
  if (!argument.way) return "as it is";
  const ExplainedRoute& way = argument.way->chosen;
  std::string steps;
  for (const ExplainedStep& item : way.steps) {
    steps += std::string(steps.empty() ? "" : ", then ") + step_kind_name(item.step.kind) +
             " along " + item.step.along(argument.way->question.axis_names);
  }
  return "to " + argument.wanted.to_string() + " by " + steps + ": " +
         grouped_digits(way.traffic.sent) + " bytes, " + duration_text(way.cost.seconds);
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
                   argument.now.to_string(), way_text(argument)});
  }
  text += arguments.text("  ");
  TextTable rules({Align::left, Align::left, Align::right, Align::left});
  for (const ExplainedAxis& axis : call.axes) {
    rules.add({"along " + axis.name, axis.taken.rule, duration_text(axis.taken.seconds), "taken"});
    for (std::size_t i = 0; i < axis.lost.size() && i < kMostLosers; ++i) {
      rules.add({"", axis.lost[i].rule, duration_text(axis.lost[i].seconds),
                 i + 1 == kMostLosers && axis.lost.size() > kMostLosers
                     ? "lost, and " + std::to_string(axis.lost.size() - kMostLosers) + " more"
                     : "lost"});
    }
  }
  return text + rules.text("  ");
}

object rule_json(const ExplainedRule& rule) {
  return object{{"rule", rule.rule}, {"seconds", rule.seconds}};
}

object call_json(const ExplainedCall& call) {
  array arguments, axes;
  for (const ExplainedArgument& argument : call.arguments) {
    object one{{"tensor", tensor_text(argument)},
               {"now", argument.now.to_string()},
               {"wanted", argument.wanted.to_string()}};
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

int CallsExplanation::collectives() const {
  int count = 0;
  for (const ExplainedCall& call : calls) {
    for (const ExplainedArgument& argument : call.arguments) {
      if (argument.way) count += argument.way->chosen.cost.collectives;
    }
  }
  return count;
}

std::int64_t CallsExplanation::bytes_sent() const {
  std::int64_t bytes = 0;
  for (const ExplainedCall& call : calls) {
    for (const ExplainedArgument& argument : call.arguments) {
      if (argument.way) bytes += argument.way->chosen.traffic.sent;
    }
  }
  return bytes;
}

double CallsExplanation::seconds() const {
  double seconds = 0;
  for (const ExplainedCall& call : calls) {
    for (const ExplainedArgument& argument : call.arguments) {
      if (argument.way) seconds += argument.way->chosen.cost.seconds;
    }
  }
  return seconds;
}

std::string CallsExplanation::to_string() const {
  std::string text;
  for (const ExplainedCall& call : calls) text += call_text(call) + "\n";
  const int count = collectives();
  return text + std::to_string(count) + " collective" + (count == 1 ? "" : "s") +
         ". This rank sends " + grouped_digits(bytes_sent()) +
         " bytes. Predicted: " + duration_text(seconds()) + ".\n";
}

std::string CallsExplanation::to_json() const {
  array list;
  for (const ExplainedCall& call : calls) list.push_back(call_json(call));
  return boost::json::serialize(object{{"calls", std::move(list)},
                                       {"collectives", collectives()},
                                       {"bytes_sent", bytes_sent()},
                                       {"seconds", seconds()}});
}

std::ostream& operator<<(std::ostream& out, const CallsExplanation& explanation) {
  return out << explanation.to_string();
}

}  // namespace dtrun::dtensor
