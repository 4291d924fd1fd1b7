// explain tells what a call would do, without communication. For a redistribution: its steps,
// bytes, predicted time, and the alternatives. For operators: the rule that is chosen, how the
// arguments are redistributed, and the cost of the other rules. Not collective.
#pragma once

#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "dtrun/dtensor/autograd/tensor.h"
#include "dtrun/dtensor/plan/cross_mesh_plan.h"
#include "dtrun/dtensor/plan/explanation.h"

namespace dtrun::dtensor {

/// Of x.redistribute(placements, order). @throws Error kInvalidArgument as it
PlanExplanation explain(const Tensor& x, const Placements& placements,
                        const ShardOrder& order = {});

/// A way to another mesh that is not taken.
struct ExplainedCrossingWay {
  CrossMeshPlan plan;
  Traffic traffic;  ///< of this rank
  std::string why;  ///< why it lost: "1.5x slower"
};

/// To another mesh.
struct ExplainedCrossing {
  CrossMeshPlan plan;
  std::vector<std::string> from_axis_names;
  std::vector<std::string> to_axis_names;
  Traffic traffic;                                 ///< of this rank
  PlanMemory memory;                               ///< of this rank, on both meshes' devices
  std::vector<ExplainedCrossingWay> alternatives;  ///< the cheapest first
};

/// Elements that come to other places of a cut dim: flip(), roll().
struct ExplainedBlocks {
  int dim;
  std::string along;  ///< the axes that cut it: "dp and tp"
  Traffic traffic;    ///< of this rank
  PlanCost cost;
};

/// Onto a mesh: distribute_tensor(), from_local() with run_check.
struct ExplainedEntry {
  std::string whose;  ///< elements come onto it: "rank 0's", "each rank's"
  std::string steps;  ///< "scatter along dp, then broadcast along tp"
  Traffic traffic;    ///< of this rank
  PlanCost cost;
};

struct ExplainedArgument {
  Shape shape;
  DType dtype = DType::f32;
  Layout now;
  Layout wanted;
  std::optional<PlanExplanation> way = {};  ///< none where it lies so already, or goes further
  std::optional<ExplainedCrossing> crossing = {};
  std::optional<ExplainedBlocks> blocks = {};
  std::optional<ExplainedEntry> entry = {};
  Placements held = placements_of({now, wanted});  ///< keep the sizes of ragged shards

  PlanCost cost() const;
  Traffic traffic() const;
  /// Bytes that this rank's transports send: PlanExplanation's, else those that the others need.
  std::int64_t carried() const;
};

struct ExplainedRule {
  std::string rule;    ///< "S(0), R -> S(0)": the arguments, then the result, along one axis
  double seconds = 0;  ///< that the call costs with it; the other axes' rules stay
  /// False: no choice tries it, whatever it costs. It cuts operands of which none is cut along the
  /// axis, or wants a Partial one where none is or another one is cut.
  bool is_tried = true;
};

struct ExplainedAxis {
  std::string name;
  ExplainedRule taken;
  std::vector<ExplainedRule> lost;  ///< those that were tried, the cheapest first, then the others
};

/// An operator, or a redistribute(), distribute_tensor() or from_local() between operators.
struct ExplainedCall {
  std::string op;
  std::string part_of;  ///< "softmax", where that is made of several operators
  std::vector<ExplainedArgument> arguments;
  std::string output;               ///< "f32[8, 4] on (2, 2): [S(0), R]"
  std::vector<ExplainedAxis> axes;  ///< none of a redistribute()
};

struct CallsExplanation {
  std::vector<ExplainedCall> calls;

  int collectives() const;
  std::int64_t bytes_sent() const;     ///< by this rank
  std::int64_t bytes_carried() const;  ///< by its transports: ExplainedArgument::carried()
  double seconds() const;              ///< predicted, of the communication
  std::string to_string() const;
  std::string to_json() const;
};

/// Explains everything that `function` calls on distributed tensors: explain([&] { return matmul(a,
/// b); }). backward() and grad() may be among the calls. The function runs with zeros in place of
/// other ranks' data. Its results are meaningless, and a shape that depends on values (indices of a
/// mask) may differ. In-place operators write nothing, and gradients and the random state are
/// restored at the end. Direct calls to a ProcessGroup are executed, such as those of
/// fully_shard(); hooks of leaves, by which data_parallel() sums gradients, are not.
/// @throws Error kUsage for an optimizer's step(): explain_step() runs one and looks
CallsExplanation explain(const std::function<void()>& function);

/// Of x.redistribute(mesh, placements, order), mostly to another mesh. @throws Error as it
CallsExplanation explain(const Tensor& x, const DeviceMesh& mesh, const Placements& placements,
                         const ShardOrder& order = {});

std::ostream& operator<<(std::ostream& out, const CallsExplanation& explanation);

}  // namespace dtrun::dtensor
