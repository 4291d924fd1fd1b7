// What this node tells the head of itself, and how long it waits for it.
#pragma once

#include "dtrun/rendezvous/round_member.h"
#include "meeting/meeting_point.h"
#include "plan/launch_plan.h"

namespace dtrun::launcher {

/// The agent's number is a new one.
rendezvous::rounds::MemberSettings member_settings(const LaunchPlan& plan, const Head& head);

}  // namespace dtrun::launcher
