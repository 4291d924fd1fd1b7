// PlannedCall: an operator's call on tensors of which only shapes, dtypes and layouts are known,
// for any number of ranks, without any of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dtrun/dtensor/ops/explain.h"
#include "dtrun/dtensor/plan/cost.h"

namespace dtrun::tools {

struct PlannedCall {
  std::vector<int> mesh_shape;
  std::vector<std::string> axis_names;
  std::vector<dtensor::LinkRate> links;  ///< one per axis; empty: those of one machine
  int rank = 0;                          ///< whose bytes are told
  std::string op;
  /// "f32[1024, 4096] [S(0), R]": dtype, shape and layout; without the dtype it is `dtype`.
  std::vector<std::string> operands;
  std::string dtype = "f32";
  std::optional<int> dim;             ///< of operators that go along one
  std::optional<std::int64_t> count;  ///< topk's k, roll's places, the size of split's parts
  bool is_both_ways = false;          ///< with the way back of its gradient
};

/// "matmul, linear, ...".
std::string planned_operators();
/// @throws Error kUsage for an operator that is not there, operands that cannot be read or are too
/// few or too many, and a dim that is missing or too much; kInvalidArgument for what the operator
/// refuses
dtensor::CallsExplanation explain_call(const PlannedCall& call);

}  // namespace dtrun::tools
