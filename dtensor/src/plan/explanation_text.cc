#include "plan/explanation_text.h"

#include <fmt/core.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <ostream>

#include "layout/text_table.h"

namespace dtrun::dtensor {
namespace {

using boost::json::array;
using boost::json::object;

constexpr auto kLeft = TextTable::Align::left;
constexpr auto kRight = TextTable::Align::right;

std::string counted(std::size_t count, const std::string& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

// Of the coordinate, row-major: the rank in a mesh of all ranks.
int rank_of(const PlanQuestion& question) {
  int rank = 0;
  for (std::size_t axis = 0; axis < question.mesh_shape.size(); ++axis) {
    rank = rank * question.mesh_shape[axis] + question.coordinate[axis];
  }
  return rank;
}

int ranks_of(const PlanQuestion& question) {
  int ranks = 1;
  for (const int size : question.mesh_shape) ranks *= size;
  return ranks;
}

std::string summary(const PlanExplanation& explanation) {
  const ExplainedRoute& chosen = explanation.chosen;
  if (chosen.steps.empty()) return "Nothing to do: the tensor has this layout already.\n";
  const int rank = rank_of(explanation.question);
  if (chosen.cost.collectives == 0) {
    return fmt::format("No communication: each rank has what it needs. Predicted: {}.\n\n",
                       duration_text(chosen.cost.seconds));
  }
  const bool differs = explanation.carried && *explanation.carried != chosen.traffic.sent;
  return fmt::format(
      "{}. Rank {} sends {} bytes{} and receives {}. Predicted: {}.\n\n",
      counted(static_cast<std::size_t>(chosen.cost.collectives), "collective"), rank,
      grouped_digits(chosen.traffic.sent),
      differs ? fmt::format(" ({} by its transports)", grouped_digits(*explanation.carried)) : "",
      grouped_digits(chosen.traffic.received), duration_text(chosen.cost.seconds));
}

std::string memory_text(const PlanExplanation& explanation) {
  const PlanMemory& memory = explanation.memory;
  return fmt::format(
      "{}Rank {} has {} bytes of tensors' memory before, {} after, and at most {} at once.\n",
      explanation.chosen.cost.collectives > 0 ? "" : "\n", rank_of(explanation.question),
      grouped_digits(memory.before), grouped_digits(memory.after), grouped_digits(memory.peak));
}

array steps_json(const PlanQuestion& question, const ExplainedRoute& route) {
  array steps;
  for (const ExplainedStep& item : route.steps) {
    const Step& step = item.step;
    steps.push_back(object{{"kind", step_kind_name(step.kind)},
                           {"axis", step.axis},
                           {"axes", json_list(step.axes())},
                           {"axis_name", step.along(question.axis_names)},
                           {"before", step.before.to_string()},
                           {"after", step.after.to_string()},
                           {"bytes_sent", item.traffic.sent},
                           {"bytes_received", item.traffic.received},
                           {"seconds", item.seconds},
                           {"meaning", item.meaning}});
  }
  return steps;
}

object route_json(const PlanQuestion& question, const ExplainedRoute& route) {
  return object{{"collectives", route.cost.collectives},
                {"bytes_sent", route.traffic.sent},
                {"bytes_received", route.traffic.received},
                {"bytes_sent_by_busiest", route.mesh.busiest.sent},
                {"seconds", route.cost.seconds},
                {"steps", steps_json(question, route)}};
}

}  // namespace

std::string duration_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.2f} s", seconds);
}

std::string mesh_text(const std::vector<int>& shape, const std::vector<std::string>& names) {
  std::string text = "(";
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    text += axis == 0 ? "" : ", ";
    if (!names.empty()) text += names[axis] + "=";
    text += std::to_string(shape[axis]);
  }
  return text + ")";
}

std::string steps_text(const PlanQuestion& question, const ExplainedRoute& route,
                       const std::string& margin) {
  TextTable table({kLeft, kLeft, kLeft, kRight, kRight, kRight, kLeft});
  table.add({"step", "along", "gives", "sends", "receives", "predicted", "each rank has to"});
  for (const ExplainedStep& item : route.steps) {
    table.add({step_kind_name(item.step.kind), item.step.along(question.axis_names),
               item.step.after.to_string(), grouped_digits(item.traffic.sent),
               grouped_digits(item.traffic.received), duration_text(item.seconds), item.meaning});
  }
  return table.text(margin);
}

std::string alternatives_text(const PlanExplanation& explanation, const std::string& margin) {
  if (explanation.chosen.cost.collectives == 0) return "";
  if (explanation.alternatives.empty()) return margin + "Other ways: none that differs.\n";
  TextTable table({kLeft, kRight, kRight, kRight, kLeft});
  table.add({"other ways", "collectives", "busiest sends", "predicted", "why not"});
  for (const ExplainedRoute& route : explanation.alternatives) {
    table.add({route.name, std::to_string(route.cost.collectives),
               grouped_digits(route.mesh.busiest.sent), duration_text(route.cost.seconds),
               route.why});
  }
  return table.text(margin);
}

std::string PlanExplanation::to_string() const {
  std::string text = fmt::format("{}{} on {} ranks {}\nfrom {}\nto   {}\n\n",
                                 tensors::dtype_short_name(question.dtype),
                                 tensors::shape_to_string(question.shape), ranks_of(question),
                                 mesh_text(question.mesh_shape, question.axis_names),
                                 question.from.to_string(), question.to.to_string());
  text += summary(*this);
  if (chosen.steps.empty()) return text;
  text += steps_text(question, chosen, "");
  if (chosen.cost.collectives > 0) {
    text +=
        fmt::format("\nAll ranks together send {} bytes, the busiest one {}.\n",
                    grouped_digits(chosen.mesh.total), grouped_digits(chosen.mesh.busiest.sent));
  }
  text += memory_text(*this);
  const std::string others = alternatives_text(*this, "");
  return others.empty() ? text : text + "\n" + others;
}

std::string PlanExplanation::to_json() const {
  object result{{"shape", json_list(question.shape)},
                {"dtype", tensors::dtype_short_name(question.dtype)},
                {"mesh", json_list(question.mesh_shape)},
                {"axis_names", json_list(question.axis_names)},
                {"rank", rank_of(question)},
                {"from", question.from.to_string()},
                {"to", question.to.to_string()},
                {"chosen", route_json(question, chosen)},
                {"bytes_before", memory.before},
                {"bytes_after", memory.after},
                {"peak_bytes", memory.peak},
                {"bytes_sent_by_all", chosen.mesh.total},
                {"bytes_sent_by_busiest", chosen.mesh.busiest.sent}};
  if (carried) result["bytes_carried"] = *carried;
  array others;
  for (const ExplainedRoute& route : alternatives) {
    object other = route_json(question, route);
    other["name"] = route.name;
    other["why_not"] = route.why;
    others.push_back(std::move(other));
  }
  result["alternatives"] = std::move(others);
  return boost::json::serialize(result);
}

std::ostream& operator<<(std::ostream& out, const PlanExplanation& explanation) {
  return out << explanation.to_string();
}

}  // namespace dtrun::dtensor
