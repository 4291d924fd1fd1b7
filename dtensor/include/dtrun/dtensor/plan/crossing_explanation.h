// Explanation of a move to another mesh, for people and for programs: steps on the first mesh,
// messages, steps on the second, with their bytes and cost, and the other ways. Pure: the ranks
// need not exist.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dtrun/dtensor/plan/cross_mesh_plan.h"
#include "dtrun/dtensor/plan/explanation.h"

namespace dtrun::dtensor {

/// One of the two meshes, and how the tensor lies there.
struct CrossingSide {
  std::vector<int> mesh_shape;
  std::vector<std::string> axis_names = {};  ///< none: "axis 0", "axis 1", ...
  int first_rank = 0;  ///< the mesh's ranks are this one and those that follow, row by row
  Layout layout;
  std::vector<LinkRate> links = {};  ///< as CostModel's

  int ranks() const;
  bool has(int rank) const { return rank >= first_rank && rank < first_rank + ranks(); }
};

struct CrossingQuestion {
  tensors::Shape shape;
  tensors::DType dtype = tensors::DType::f32;
  CrossingSide from;
  CrossingSide to;
  int rank = 0;  ///< whose bytes are told
};

struct ExplainedCrossMesh {
  CrossMeshPlan plan;
  ExplainedRoute before;  ///< its traffic is nothing where the rank is outside of the mesh
  Traffic messages;       ///< of the rank that was asked for
  ExplainedRoute after;   ///< as before
  Traffic traffic;        ///< of all three together
  std::string why;        ///< why it lost: "1.5x slower"
};

struct CrossingExplanation {
  CrossingQuestion question;
  ExplainedCrossMesh chosen;
  PlanMemory memory;                             ///< of the rank, on devices of one type
  std::vector<ExplainedCrossMesh> alternatives;  ///< the cheapest first
  Placements held;                               ///< keep the sizes of ragged shards

  /// A page for the terminal.
  std::string to_string() const;
  /// An object; its fields are told in docs/dtensor.md.
  std::string to_json() const;
};

/// @throws Error kInvalidArgument for a rank of neither mesh
CrossingExplanation explain_crossing(CrossingQuestion question);

}  // namespace dtrun::dtensor
