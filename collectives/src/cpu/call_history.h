// CallHistory: the last collectives that one rank has called in one group, by sequence, in shared
// memory: a peer that waits in vain looks up what this rank called in the same place. One writer;
// readers may come at any time. Zeroed memory is an empty one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "dtrun/collectives/fingerprint.h"

namespace dtrun::collectives::cpu {

class CallHistory {
 public:
  /// More than a rank may be posts ahead of another: the call in which they differ is found, unless
  /// many calls by messages, which make no posts, lie between it and the next post.
  static constexpr std::size_t kLength = 128;

  // Every word is stored with release and loaded with acquire, as RankBoard's.
  void write(const Fingerprint& print) {
    std::atomic<std::uint64_t>* entry = entries_[print.sequence % kLength];
    entry[0].store(0, std::memory_order_relaxed);
    write_words(entry, print, std::make_index_sequence<kWords - 1>());
    entry[0].store(print.sequence, std::memory_order_release);
  }

  /// nullopt: not called, or too long ago.
  std::optional<Fingerprint> read(std::uint64_t sequence) const {
    const std::atomic<std::uint64_t>* entry = entries_[sequence % kLength];
    std::uint64_t words[kWords];
    if (sequence == 0) return std::nullopt;
    for (std::size_t i = 0; i < kWords; ++i) words[i] = entry[i].load(std::memory_order_acquire);
    if (words[0] != sequence || entry[0].load(std::memory_order_relaxed) != sequence)
      return std::nullopt;
    Fingerprint print;
    std::memcpy(static_cast<void*>(&print), words, sizeof(print));
    return print;
  }

 private:
  static constexpr std::size_t kWords = sizeof(Fingerprint) / sizeof(std::uint64_t);
  static_assert(offsetof(Fingerprint, sequence) == 0);

  /// All but the first.
  template <std::size_t... kWord>
  static void write_words(std::atomic<std::uint64_t>* entry, const Fingerprint& print,
                          std::index_sequence<kWord...>) {
    const auto word_at = [&](std::size_t at) {
      std::uint64_t word;
      std::memcpy(&word, reinterpret_cast<const std::byte*>(&print) + at * sizeof(word),
                  sizeof(word));
      return word;
    };
    (entry[kWord + 1].store(word_at(kWord + 1), std::memory_order_release), ...);
  }

  std::atomic<std::uint64_t> entries_[kLength][kWords];
};

}  // namespace dtrun::collectives::cpu
