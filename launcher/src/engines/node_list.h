// NodeList: Slurm's notation for many host names: "a[1-3,07-09],b", also with several brackets in
// one name. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::launcher {

/// @throws Error kUsage: malformed, or more than a million names
std::vector<std::string> expand_node_list(std::string_view text);

/// Slurm's counts per node: "2(x3),1" is {2, 2, 2, 1}. @throws Error kUsage
std::vector<int> expand_counts(std::string_view text);

}  // namespace dtrun::launcher
