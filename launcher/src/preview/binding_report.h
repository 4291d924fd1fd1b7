// BindingReport: what each local rank has of this node, as a table (--report-bindings). Pure.
#pragma once

#include <string>
#include <vector>

#include "plan/launch_plan.h"

namespace dtrun::launcher {

/// Facts that are not in the plan.
struct NodeResources {
  std::vector<int> cpus;  ///< that this process may use; ranks that are not bound have them all
  int devices = 0;        ///< GPUs that CUDA_VISIBLE_DEVICES lets through
};

std::string binding_report(const LaunchPlan& plan, const NodeResources& node);

}  // namespace dtrun::launcher
