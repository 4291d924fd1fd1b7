#include "rank_board.h"

#include <fmt/core.h>

#include <chrono>
#include <cstring>

#include "dtrun/base/deadline.h"

namespace dtrun::collectives {

std::int64_t monotonic_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string BoardLine::describe(std::int64_t now_ns) const {
  if (fingerprint.kind == OpKind::none) return "in no collective yet";
  const auto ago = [now_ns](std::int64_t then) {
    return base::format_duration(std::chrono::nanoseconds(now_ns > then ? now_ns - then : 0));
  };
  if (ended_ns != 0)
    return fmt::format("in no collective, {} after {} of group '{}'", ago(ended_ns),
                       fingerprint.describe(), group);
  std::string text =
      fmt::format("in {} of group '{}' for {}", fingerprint.describe(), group, ago(started_ns));
  if (waiting_for >= 0) text += fmt::format(", waiting for rank {}", waiting_for);
  return text;
}

// Every word is stored with release and loaded with acquire: who sees a new word also sees the odd
// version that came before it. A fence would do the same, but TSan does not know fences.
void RankBoard::write(const BoardLine& line) {
  const std::uint64_t version = version_.load(std::memory_order_relaxed);
  version_.store(version + 1, std::memory_order_relaxed);
  write_words(line, std::make_index_sequence<kWords>());
  version_.store(version + 2, std::memory_order_release);
}

void RankBoard::write_end(std::int64_t ended_ns) {
  constexpr std::size_t kWord = offsetof(BoardLine, ended_ns) / sizeof(std::uint64_t);
  static_assert(offsetof(BoardLine, ended_ns) % sizeof(std::uint64_t) == 0);
  const std::uint64_t version = version_.load(std::memory_order_relaxed);
  version_.store(version + 1, std::memory_order_relaxed);
  words_[kWord].store(static_cast<std::uint64_t>(ended_ns), std::memory_order_release);
  version_.store(version + 2, std::memory_order_release);
}

std::optional<BoardLine> RankBoard::read() const {
  constexpr int kAttempts = 10000;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::uint64_t before = version_.load(std::memory_order_acquire);
    if (before % 2 != 0) continue;
    std::uint64_t words[kWords];
    for (std::size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_acquire);
    if (version_.load(std::memory_order_relaxed) != before) continue;
    BoardLine line;
    std::memcpy(&line, words, sizeof(line));
    return line;
  }
  return std::nullopt;
}

}  // namespace dtrun::collectives
