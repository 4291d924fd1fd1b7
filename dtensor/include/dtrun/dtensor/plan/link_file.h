// The costs of links as text and as a file. Pure, apart from reading the file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dtrun/collectives/cost_table.h"
#include "dtrun/dtensor/plan/cost.h"

namespace dtrun::dtensor {

/// "shm", "device", "network", or LATENCY:RATE in seconds and bytes a second ("3e-6:4e9"). @throws
/// Error kInvalidArgument
LinkRate parse_link(std::string_view text);
/// Of each axis, by its name or by its number:
/// {"dp": {"latency": 2e-5, "bytes_per_second": 1e9}, "1": ...}; "*" is for all that have none.
/// @param axis_names may be empty @throws Error for the file, and kInvalidArgument for what it says
std::vector<LinkRate> read_links(const std::string& path, std::size_t axes,
                                 const std::vector<std::string>& axis_names);
/// Which links of a table an axis may take: that of its name, of its number, of "*". Numbers are
/// the axes of the mesh that its user lays out. A part of one of those has none, and of several as
/// one the parts have taken "*" already.
enum class LinkKeys { all, no_number, own_name };
/// The same of the group's table, which may have no link for an axis: that one stays what it is.
/// @param links one per axis @throws Error kInvalidArgument for what the table says
void take_links(const collectives::CostTable& costs, const std::vector<std::string>& axis_names,
                LinkKeys keys, std::vector<LinkRate>& links);

}  // namespace dtrun::dtensor
