// futex(2) on a 32-bit word that may lie in memory shared between processes.
#pragma once

#include <atomic>
#include <cstdint>

#include "dtrun/base/deadline.h"

namespace dtrun::base {

/// Sleeps while *word == expected, until futex_wake, the deadline or a spurious return: re-check
/// after it.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected, Deadline deadline);
/// Wakes every sleeper on the word.
void futex_wake_all(const std::atomic<std::uint32_t>& word);

}  // namespace dtrun::base
