// Copied image: a child by fork(), copy on write.
#pragma once

#include <functional>

#include "started_process.h"

namespace dtrun::mp {

/// The call runs in the copy. @throws Error kUsage where a copy of this process could not live (see
/// fork_danger.h), kSystem
StartedProcess::Parts start_copy(const Order& order, const std::function<void()>& call);

/// What any forked child does first. Ends it where its parent is gone.
void tie_to_parent(pid_t parent);

}  // namespace dtrun::mp
