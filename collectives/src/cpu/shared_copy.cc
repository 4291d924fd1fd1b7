#include "shared_copy.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "large_copy.h"

namespace dtrun::collectives::cpu {

namespace {
/// Of a long copy, what is timed by itself: another thread that runs meanwhile delays one of many.
constexpr std::size_t kPieceBytes = 32 << 10;
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
  using Clock = std::chrono::steady_clock;
  const CopyPace::Next next = pace_.next(bytes);
  const Clock::time_point begin = next.is_timed ? Clock::now() : Clock::time_point();
  if (next.way == CopyPace::Way::around)
    copy_around(to, from, bytes);
  else
    std::memcpy(to, from, bytes);
  pace_.note(bytes, next.is_timed ? Clock::now() - begin : Clock::duration());
}

}  // namespace dtrun::collectives::cpu
