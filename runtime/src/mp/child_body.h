// What a child does with the function, and how it ends.
#pragma once

#include <functional>

#include "hand_over.h"

namespace dtrun::mp {

/// Runs the body; an exception goes into the hand-over, and to standard error if so ordered.
/// What would leave it ends the process: below a copy's function lies its parent's stack, which is
/// not the child's to run.
/// @return the exit code: 0, or 1 after an exception
int run_body(int hand_over, const Order& order, const std::function<void()>& body) noexcept;

/// A copy's last act: no exit handler and no destructor of the process that it was copied from may
/// run in it, but what it has printed shall appear, and its own children end as at exit().
[[noreturn]] void leave_copy(int exit_code) noexcept;

}  // namespace dtrun::mp
