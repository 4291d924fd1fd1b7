// futex(2) on a 32-bit word that may lie in memory shared between processes.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "dtrun/base/deadline.h"

namespace dtrun::base {

/// Sleeps while *word == expected, until futex_wake, the deadline or a spurious return: re-check
/// after it.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected, Deadline deadline);

struct FutexWord {
  const std::atomic<std::uint32_t>* word;
  std::uint32_t expected;
};
/// Sleeps while every one of the words has its expected value; otherwise as futex_wait. Kernels
/// before 5.16 cannot wait on several words: there it sleeps on the first, for 50 ms at most.
void futex_wait_any(std::span<const FutexWord> words, Deadline deadline);
/// Wakes every sleeper on the word.
void futex_wake_all(const std::atomic<std::uint32_t>& word);

}  // namespace dtrun::base
