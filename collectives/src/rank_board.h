// RankBoard: one line in a rank's heap that says what the rank does now, or did last. Written by
// the rank, read by local peers that wait for it, also after its death. Lock-free: a reader that
// meets a writer reads again.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "dtrun/collectives/fingerprint.h"

namespace dtrun::collectives {

struct BoardLine {
  Fingerprint fingerprint;        ///< kind none: nothing yet
  char group[24] = {};            ///< NUL-terminated
  std::int64_t started_ns = 0;    ///< CLOCK_MONOTONIC
  std::int64_t ended_ns = 0;      ///< 0: still in it
  std::int32_t waiting_for = -1;  ///< global rank; -1: nobody in particular
  std::int32_t victim_of = -1;    ///< the global rank by which this one has failed; -1: none

  /// "in all_reduce #41 (...) at train.cc:212 of group 'world' for 2.1 s, waiting for rank 0", or
  /// "in no collective, 3 s after all_reduce #40 ...".
  std::string describe(std::int64_t now_ns) const;
};
static_assert(sizeof(BoardLine) == 112);

std::int64_t monotonic_ns();

class RankBoard {
 public:
  void write(const BoardLine& line);
  /// Of the next such call: the line is as it was, but for its sequence, its times and whom it
  /// waits for.
  void write_next(const BoardLine& line) {
    static_assert(offsetof(BoardLine, fingerprint.sequence) == 0);
    static_assert(offsetof(BoardLine, waiting_for) % sizeof(std::uint64_t) == 0);
    const std::uint64_t version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);
    write_word(0, line);
    write_word(offsetof(BoardLine, started_ns), line);
    write_word(offsetof(BoardLine, ended_ns), line);
    write_word(offsetof(BoardLine, waiting_for), line);
    version_.store(version + 2, std::memory_order_release);
  }
  /// The line is as it was, but for its ended_ns.
  void write_end(std::int64_t ended_ns);
  /// nullopt when the writer died, or is stopped, halfway through a line.
  std::optional<BoardLine> read() const;

 private:
  static constexpr std::size_t kWords = sizeof(BoardLine) / sizeof(std::uint64_t);
  /// @param offset where in the line that word begins
  void write_word(std::size_t offset, const BoardLine& line) {
    std::uint64_t word;
    std::memcpy(&word, reinterpret_cast<const std::byte*>(&line) + offset, sizeof(word));
    words_[offset / sizeof(word)].store(word, std::memory_order_release);
  }
  template <std::size_t... kWord>
  void write_words(const BoardLine& line, std::index_sequence<kWord...>) {
    (write_word(kWord * sizeof(std::uint64_t), line), ...);
  }
  std::atomic<std::uint64_t> version_{0};  ///< odd while a line is being written
  std::atomic<std::uint64_t> words_[kWords] = {};
};

}  // namespace dtrun::collectives
