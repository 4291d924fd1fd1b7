// What moves along a dim that is cut: each rank gets just the elements that come to its part, in
// one all_to_all.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::dtensor {

/// Elements along a dim and where they come to be.
struct BlockMove {
  std::int64_t from;
  std::int64_t to;
  std::int64_t length;
};
enum class BlockOrder : std::uint8_t { kept, reversed };

/// Lies as `a` does. Outside the graph. @param op for which it is, a literal @param moves come to
/// each place of the dim once
Tensor moved_along(std::string_view op, const Tensor& a, int dim,
                   const std::vector<BlockMove>& moves, BlockOrder order);

}  // namespace dtrun::dtensor
