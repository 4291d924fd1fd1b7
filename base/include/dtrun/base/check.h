// DT_CHECK(condition): an invariant of our own code. On failure prints file, line and condition and
// aborts; always on. Never for what a user, a peer or the system can cause: that is an Error.
#pragma once

namespace dtrun::base {
[[noreturn]] void check_failed(const char* condition, const char* file, int line);
}

#define DT_CHECK(condition)              \
  (static_cast<bool>(condition) ? void() \
                                : ::dtrun::base::check_failed(#condition, __FILE__, __LINE__))
