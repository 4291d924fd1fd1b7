// HostList: which hosts a job has and how many ranks each gets: the value of --hosts, or the text
// of a --hostfile as Open MPI or MPICH write it. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::launcher {

struct ListedHost {
  std::string name;
  std::optional<int> slots;  ///< none: what --nproc_per_node says
};

/// "a:4,b:4", "a,b", "gpu[1-8]:4".
/// @throws Error kUsage, also where a host is named twice
std::vector<ListedHost> parse_host_list(std::string_view text, const std::string& origin);

/// Lines "a", "a:4", "a slots=4 max_slots=8", "a:4 binding=user"; '#' begins a comment. A host that
/// is named again adds its slots, as with mpirun.
/// @throws Error kUsage that names the line
std::vector<ListedHost> parse_hostfile(std::string_view text, const std::string& path);

}  // namespace dtrun::launcher
