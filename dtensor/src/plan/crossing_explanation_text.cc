#include <fmt/core.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include "dtrun/dtensor/plan/crossing_explanation.h"
#include "layout/text_table.h"
#include "plan/explanation_text.h"

namespace dtrun::dtensor {
namespace {

using boost::json::array;
using boost::json::object;

using Align = TextTable::Align;

std::string side_text(const CrossingSide& side) {
  return fmt::format("{} on ranks {} to {} {}", side.layout.to_string(), side.first_rank,
                     side.first_rank + side.ranks() - 1,
                     mesh_text(side.mesh_shape, side.axis_names));
}

/// "all_reduce along dp, messages, all_gather along tp".
std::string way_text(const CrossingQuestion& question, const ExplainedCrossMesh& way) {
  std::string text;
  for (const Step& step : way.plan.before)
    text += fmt::format("{} along {}, ", step_kind_name(step.kind),
                        step.along(question.from.axis_names));
  text += "messages";
  for (const Step& step : way.plan.after)
    text +=
        fmt::format(", {} along {}", step_kind_name(step.kind), step.along(question.to.axis_names));
  return text;
}

void add_steps(TextTable& table, const char* mesh, const std::vector<std::string>& names,
               const ExplainedRoute& route) {
  for (const ExplainedStep& item : route.steps)
    table.add({step_kind_name(item.step.kind), fmt::format("{}, {}", mesh, item.step.along(names)),
               item.step.after.to_string(), grouped_digits(item.traffic.sent),
               grouped_digits(item.traffic.received), duration_text(item.seconds), item.meaning});
}

std::string steps_text(const CrossingQuestion& question, const ExplainedCrossMesh& way) {
  TextTable table({Align::left, Align::left, Align::left, Align::right, Align::right, Align::right,
                   Align::left});
  table.add({"step", "along", "gives", "sends", "receives", "predicted", "each rank has to"});
  add_steps(table, "first", question.from.axis_names, way.before);
  table.add({"messages", "both", way.plan.wanted.to_string(), grouped_digits(way.messages.sent),
             grouped_digits(way.messages.received), duration_text(way.plan.messages.seconds),
             "get from the first mesh what it lacks"});
  add_steps(table, "second", question.to.axis_names, way.after);
  return table.text();
}

std::string alternatives_text(const CrossingExplanation& explanation) {
  if (explanation.alternatives.empty()) return "\nOther ways: none that differs.\n";
  TextTable table({Align::left, Align::right, Align::right, Align::left});
  table.add({"other ways", "this rank sends", "predicted", "why not"});
  for (const ExplainedCrossMesh& way : explanation.alternatives)
    table.add({way_text(explanation.question, way), grouped_digits(way.traffic.sent),
               duration_text(way.plan.cost.seconds), way.why});
  return "\n" + table.text();
}

object side_json(const CrossingSide& side) {
  return object{{"mesh", json_list(side.mesh_shape)},
                {"axis_names", json_list(side.axis_names)},
                {"first_rank", side.first_rank},
                {"layout", side.layout.to_string()}};
}

void add_steps(array& list, const char* mesh, const std::vector<std::string>& names,
               const ExplainedRoute& route) {
  for (const ExplainedStep& item : route.steps)
    list.push_back(object{{"kind", step_kind_name(item.step.kind)},
                          {"mesh", mesh},
                          {"axes", json_list(item.step.axes())},
                          {"axis_name", item.step.along(names)},
                          {"before", item.step.before.to_string()},
                          {"after", item.step.after.to_string()},
                          {"bytes_sent", item.traffic.sent},
                          {"bytes_received", item.traffic.received},
                          {"seconds", item.seconds},
                          {"meaning", item.meaning}});
}

object way_json(const CrossingQuestion& question, const ExplainedCrossMesh& way) {
  array steps;
  add_steps(steps, "first", question.from.axis_names, way.before);
  steps.push_back(object{{"kind", "messages"},
                         {"mesh", "both"},
                         {"before", way.plan.given.to_string()},
                         {"after", way.plan.wanted.to_string()},
                         {"bytes_sent", way.messages.sent},
                         {"bytes_received", way.messages.received},
                         {"seconds", way.plan.messages.seconds}});
  add_steps(steps, "second", question.to.axis_names, way.after);
  return object{{"collectives", way.plan.cost.collectives},
                {"bytes_sent", way.traffic.sent},
                {"bytes_received", way.traffic.received},
                {"seconds", way.plan.cost.seconds},
                {"steps", std::move(steps)}};
}

}  // namespace

std::string CrossingExplanation::to_string() const {
  std::string text = fmt::format(
      "{}{} to another mesh\nfrom {}\nto   {}\n\n", tensors::dtype_short_name(question.dtype),
      tensors::shape_to_string(question.shape), side_text(question.from), side_text(question.to));
  const int rank = question.rank;
  text += fmt::format("Rank {} sends {} bytes and receives {}. Predicted: {}.\n\n", rank,
                      grouped_digits(chosen.traffic.sent), grouped_digits(chosen.traffic.received),
                      duration_text(chosen.plan.cost.seconds));
  text += steps_text(question, chosen);
  text += fmt::format(
      "\nRank {} has {} bytes of tensors' memory before, {} after, and at most {} at once.\n", rank,
      grouped_digits(memory.before), grouped_digits(memory.after), grouped_digits(memory.peak));
  return text + alternatives_text(*this);
}

std::string CrossingExplanation::to_json() const {
  object result{{"shape", json_list(question.shape)},
                {"dtype", tensors::dtype_short_name(question.dtype)},
                {"rank", question.rank},
                {"from", side_json(question.from)},
                {"to", side_json(question.to)},
                {"chosen", way_json(question, chosen)},
                {"bytes_before", memory.before},
                {"bytes_after", memory.after},
                {"peak_bytes", memory.peak}};
  array others;
  for (const ExplainedCrossMesh& way : alternatives) {
    object other = way_json(question, way);
    other["name"] = way_text(question, way);
    other["why_not"] = way.why;
    others.push_back(std::move(other));
  }
  result["alternatives"] = std::move(others);
  return boost::json::serialize(result);
}

}  // namespace dtrun::dtensor
