#include "shared_copy.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "large_copy.h"

namespace dtrun::collectives::cpu {

namespace {
/// Of a long copy, what is timed by itself: another thread that runs meanwhile delays one of many.
constexpr std::size_t kPieceBytes = 32 << 10;
/// A core's store buffer holds most of them.
constexpr std::size_t kWaitingBytes = 8 << 10;
}  // namespace

void SharedCopy::copy(void* to, const void* from, std::size_t bytes) {
  auto* target = static_cast<std::byte*>(to);
  const auto* source = static_cast<const std::byte*>(from);
  while (bytes != 0) {
    const std::size_t now = std::min(bytes, kPieceBytes);
    copy_piece(target, source, now);
    target += now;
    source += now;
    bytes -= now;
  }
}

void SharedCopy::copy_piece(std::byte* to, const std::byte* from, std::size_t bytes) {
  const CopyPace::Next next = pace_.next(bytes);
  if (next.is_timed) return copy_timed(to, from, bytes);
  if (next.way == CopyPace::Way::around)
    copy_around(to, from, bytes);
  else
    std::memcpy(to, from, bytes);
  pace_.note(bytes);
}

/// Through the caches. What a look at the clock takes does not count.
void SharedCopy::copy_timed(std::byte* to, const std::byte* from, std::size_t bytes) {
  using Clock = std::chrono::steady_clock;
  const bool waits = bytes < kWaitingBytes;
  // The caller's stores before these are not to be waited for while the clock runs.
  if (waits) std::atomic_thread_fence(std::memory_order_seq_cst);
  const Clock::time_point before = Clock::now();
  const Clock::time_point begin = Clock::now();
  std::memcpy(to, from, bytes);
  // All stores of so few bytes would still wait in the core for their lines.
  if (waits) std::atomic_thread_fence(std::memory_order_seq_cst);
  const Clock::duration look = begin - before;
  pace_.note(bytes, std::max(Clock::now() - begin - look, Clock::duration()));
}

}  // namespace dtrun::collectives::cpu
