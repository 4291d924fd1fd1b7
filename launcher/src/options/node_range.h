// NodeRange: the value of --nnodes, "N" or "MIN:MAX". Pure.
#pragma once

#include <string_view>

namespace dtrun::launcher {

struct NodeRange {
  int least = 1;
  int most = 1;
};

/// @throws Error kInvalidArgument whose summary completes "--nnodes=TEXT ..."
NodeRange parse_node_range(std::string_view text);

}  // namespace dtrun::launcher
