// user_frame: the line of the user's program that called into dtrun, read from this thread's stack.
// For errors only: operators have no parameter that could take a CallSite, and the good path pays
// nothing. Safe in threads; never throws. It asks the dynamic loader, whose lock a child of fork
// inherits where another thread was in it.
#pragma once

#include <string>
#include <string_view>

#include "dtrun/base/error.h"

namespace dtrun::base {

/// Stands before the place in what().
inline constexpr std::string_view kPlaceMark = "\n  at: ";

/// "train.cc:41". Without line information "main+0x1f2 in ./app (compile with -g for the line)", of
/// a stripped program addresses for addr2line. Empty: no frame of this thread is the user's.
/// The first call of a process reads its symbols and lines, the others take microseconds.
std::string user_frame() noexcept;

/// The place that the error's text names; empty: none.
std::string place_in(const Error& error);

}  // namespace dtrun::base
