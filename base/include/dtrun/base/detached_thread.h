// Threads that nobody joins, because what they do may hang.
#pragma once

#include <functional>

namespace dtrun::base {

/// The thread takes no signal. @throws Error kSystem
void start_detached_thread(std::function<void()> run);

}  // namespace dtrun::base
