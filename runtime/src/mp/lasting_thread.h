// A thread that lives as long as the process, for what must be done by one: a child's parent-death
// signal is sent when the thread that started it ends, not the process.
#pragma once

#include <functional>

namespace dtrun::mp {

/// Runs the action on the main thread, if that is the caller's, else on a thread that is made for
/// this once and never ends. Waits for it. @throws what it throws
void on_lasting_thread(const std::function<void()>& action);

}  // namespace dtrun::mp
