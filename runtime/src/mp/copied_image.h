// Copied image: a child by fork(), copy on write.
#pragma once

#include <functional>

#include "started_process.h"

namespace dtrun::mp {

/// @throws Error kUsage where a copy of this process could not live: another thread, a Worker, a
/// CUDA context; kSystem
StartedProcess::Parts start_copy(const Order& order, const std::function<void()>& call);

}  // namespace dtrun::mp
