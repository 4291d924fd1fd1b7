// MeetingPoint: where the agents of a job meet, as this one finds it: its own listening socket, or
// somebody else's to connect to. Found once, before the guard is forked.
#pragma once

#include <string>

#include "dtrun/base/unique_fd.h"
#include "launch_plan.h"

namespace dtrun::launcher {

struct MeetingPoint {
  base::UniqueFd listener;  ///< of node 0, which hosts; invalid: this node joins
  std::string reason;       ///< why; empty where --node_rank has said so
};

/// Bounded by a few seconds: a name that does not resolve is asked for again, for it may be new.
/// @throws Error kConnection, kUsage, kSystem
MeetingPoint find_meeting_point(const LaunchPlan& plan);

}  // namespace dtrun::launcher
