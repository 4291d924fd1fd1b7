// Explanation of a redistribution, for people and for programs: its steps, their bytes and cost,
// and the alternatives with the reason why they were not chosen. Pure: the ranks need not exist.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "dtrun/dtensor/plan/memory.h"
#include "dtrun/dtensor/plan/redistribute_plan.h"
#include "dtrun/dtensor/plan/traffic.h"
#include "dtrun/tensor/dtype.h"

namespace dtrun::dtensor {

/// What is to be explained.
struct PlanQuestion {
  tensors::Shape shape;
  tensors::DType dtype = tensors::DType::f32;
  std::vector<int> mesh_shape;
  std::vector<std::string> axis_names = {};  ///< none: "axis 0", "axis 1", ...
  Layout from;
  Layout to;
  std::vector<LinkRate> links = {};  ///< as CostModel's
  std::vector<int> coordinate = {};  ///< of the rank whose bytes are told; none: the first one

  std::int64_t item_bytes() const;
  CostModel costs() const { return {item_bytes(), links}; }
};

struct ExplainedStep {
  Step step;
  double seconds = 0;  ///< predicted
  Traffic traffic;     ///< of the rank that was asked for
  /// "collect the chunks of dim 0".
  std::string meaning;
};

struct ExplainedRoute {
  std::string name;  ///< of an alternative: "over Replicate on every axis"
  std::vector<ExplainedStep> steps;
  PlanCost cost;
  Traffic traffic;  ///< of the rank that was asked for
  std::string why;  ///< why it lost: "2.0x slower: 4,194,304 bytes more to send"
  /// Over all ranks: the given rank may send nothing while others do.
  MeshTraffic mesh;

  std::vector<Step> plan() const;
};

struct PlanExplanation {
  PlanQuestion question;
  ExplainedRoute chosen;
  PlanMemory memory;                         ///< that the chosen one takes on the same rank
  std::vector<ExplainedRoute> alternatives;  ///< the cheapest first; none is the chosen one
  Placements held;                           ///< keep the sizes of ragged shards
  /// Bytes that this rank's transports send for the chosen one: of a short all_reduce among more
  /// than two ranks all of its bytes to each, and between machines what it passes on, too. nullopt:
  /// nobody can tell, as in dtrun-plan.
  std::optional<std::int64_t> carried = {};

  /// A page for the terminal.
  std::string to_string() const;
  /// An object; its fields are told in docs/dtensor.md.
  std::string to_json() const;
};

/// @throws Error kInvalidArgument for a coordinate that the mesh does not have
PlanExplanation explain_plan(PlanQuestion question);

std::ostream& operator<<(std::ostream& out, const PlanExplanation& explanation);

}  // namespace dtrun::dtensor
