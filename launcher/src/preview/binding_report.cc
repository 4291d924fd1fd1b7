#include "preview/binding_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "dtrun/base/cpu_list.h"

namespace dtrun::launcher {
namespace {

using Row = std::array<std::string, 5>;

// Of the program that the rank runs.
std::string program_variable(const LaunchPlan& plan, std::size_t rank, const std::string& name) {
  const std::string begin = name + "=";
  const PlannedProgram& program = plan.programs[plan.program_of(static_cast<int>(rank))];
  for (const std::string& entry : program.command.environment)
    if (entry.starts_with(begin)) return entry.substr(begin.size());
  return "";
}

// The entry with that number in a list with commas; empty if there is none.
std::string entry_of(const std::string& list, std::size_t number) {
  std::size_t begin = 0;
  for (; number > 0; --number) {
    begin = list.find(',', begin);
    if (begin == std::string::npos) return "";
    ++begin;
  }
  return list.substr(begin, list.find(',', begin) - begin);
}

// By the convention that a rank takes the device of its local rank's number.
std::string device_of(const LaunchPlan& plan, const NodeResources& node, std::size_t rank) {
  if (rank < plan.virtual_devices.size()) return plan.virtual_devices[rank];
  if (rank >= static_cast<std::size_t>(node.devices)) return "-";
  const std::string visible = program_variable(plan, rank, "CUDA_VISIBLE_DEVICES");
  return visible.empty() ? std::to_string(rank) : entry_of(visible, rank);
}

Row row_of(const LaunchPlan& plan, const NodeResources& node, std::size_t rank) {
  const RankBinding& binding = plan.bindings[rank];
  const bool bound = !binding.cpus.empty();
  const std::string threads = rank < plan.omp_shares.size()
                                  ? std::to_string(plan.omp_shares[rank])
                                  : program_variable(plan, rank, "OMP_NUM_THREADS");
  return {std::to_string(rank),
          base::format_cpu_list(bound ? binding.cpus : node.cpus) + (bound ? "" : " (not bound)"),
          binding.memory_node ? fmt::format("node {} first", *binding.memory_node) : "any",
          device_of(plan, node, rank), threads.empty() ? "-" : threads};
}

}  // namespace

std::string binding_report(const LaunchPlan& plan, const NodeResources& node) {
  std::vector<Row> rows = {{"local rank", "CPUs", "memory", "GPU", "OMP_NUM_THREADS"}};
  for (std::size_t rank = 0; rank < plan.bindings.size(); ++rank)
    rows.push_back(row_of(plan, node, rank));
  std::array<std::size_t, 5> widths{};
  for (const Row& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i + 1 < row.size(); ++i)
      text += fmt::format("{:<{}}  ", row[i], widths[i]);
    text += row.back() + "\n";
  }
  return text;
}

}  // namespace dtrun::launcher
