// Fresh image: this program, executed again, which in run_if_child() takes an order from its
// parent. Shares no memory and no descriptor with this process but the standard streams and those
// named.
#pragma once

#include <vector>

#include "dtrun/base/child_process.h"
#include "hand_over.h"

namespace dtrun::mp {

/// The variable by which an image knows that it is a child: "<fd>:<parent's pid>".
inline constexpr const char* kHandOverVariable = "DTRUN_MP_HAND_OVER_FD";

/// As ps shows this process.
std::string program_name();

/// @throws SpawnError
base::ChildProcess start_fresh_image(int hand_over, std::vector<int> inherited_fds = {});

}  // namespace dtrun::mp
