// Notation: layouts as people write them. PyTorch's has an entry per mesh axis: "[S(0), R]",
// "{Shard(0), Replicate()}", "P(max), S(-1)", "S(0)[1]S(0)[0]". ColossalAI's has one per tensor
// dim, with the axes that cut it, outermost first: "[S01, R]", "[R, S10]"; or those dims alone:
// "{0: [0, 1]}". Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dtrun/dtensor/layout/layout.h"
#include "dtrun/tensor/shape.h"

namespace dtrun::dtensor {

/// Each of them, with or without brackets or braces; "order {0: [1, 0]}" may follow PyTorch's,
/// as Layout::to_string() writes it. @throws Error kInvalidArgument
Layout parse_layout(std::string_view text, const tensors::Shape& global_shape,
                    const std::vector<int>& mesh_shape);
/// ColossalAI's: "[S01, R]". @throws Error kInvalidArgument for Partial, which it has no word for
std::string sharding_sequence(const Layout& layout, std::size_t dims);
/// "{0: [0, 1]}"; nothing is cut: "{}". @throws Error as above
std::string dim_partition(const Layout& layout, std::size_t dims);

}  // namespace dtrun::dtensor
