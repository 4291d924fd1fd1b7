// The meeting point of --rdzv_backend=etcd-v2: etcd elects the head, and another one when that is
// gone. Every agent listens from the start, so that its address can be published with its
// candidacy.
#pragma once

#include <memory>

#include "meeting/meeting_point.h"

namespace dtrun::launcher {

/// @param loop, plan must live longer
std::unique_ptr<MeetingPoint> make_elected_meeting_point(base::EventLoop& loop,
                                                         const LaunchPlan& plan);

/// How long after the head's end the next one may take to be elected and to be found.
std::chrono::nanoseconds election_patience(const Options& options);

}  // namespace dtrun::launcher
