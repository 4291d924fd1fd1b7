// The operators that dtrun-plan can plan: how each is called with what can be said on a command
// line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::tools {

/// What is said beside the operands.
struct PlannedArguments {
  std::optional<int> dim;
  std::optional<std::int64_t> count;
};

struct PlannedOperator {
  enum class Along { nothing, dim, dim_or_all };

  std::string_view name;
  std::size_t least, most;  ///< operands
  Along along;
  dtensor::Tensor (*call)(const dtensor::Tensors& operands, const PlannedArguments& given);
  std::size_t positions = SIZE_MAX;  ///< which operand holds integers; SIZE_MAX: none
  std::string_view count = {};       ///< what --count says; empty: it is not taken
};

/// By name.
std::span<const PlannedOperator> planned_operator_table();

}  // namespace dtrun::tools
