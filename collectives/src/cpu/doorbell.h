// Doorbell: the word on which one rank's threads sleep, in that rank's heap, where every local peer
// can ring it. A sleeper takes a ticket, says that it is about to sleep, looks once more for
// something to do, and sleeps until the ticket is old. Whoever has published something rings after
// it. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "dtrun/base/futex.h"

namespace dtrun::collectives::cpu {

/// Of a store that publishes something, where a mutex is taken before ring_sleepers(). To take one
/// is a full fence on x86.
#if defined(__x86_64__)
inline constexpr std::memory_order kBeforeMutex = std::memory_order_release;
#else
inline constexpr std::memory_order kBeforeMutex = std::memory_order_seq_cst;
#endif

struct alignas(128) Doorbell {
  std::atomic<std::uint32_t> word{0};
  std::atomic<std::uint32_t> sleepers{0};
  std::atomic<std::uint32_t> newest{0};  ///< ticket of a sleeper

  /// For events that a spinning thread may not see by itself.
  void ring() {
    word.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_seq_cst) != 0) base::futex_wake_all(word);
  }
  /// For data that a spinning thread sees by itself. The publishing store must be seq_cst, or
  /// kBeforeMutex: either the sleeper's last look sees the data, or this sees the sleeper. Who has
  /// been rung since it took its ticket is not rung again: until it runs, which takes long where it
  /// waits for a core, each ring would be a system call. A thread that is stopped between the two
  /// lines of ring() so keeps the sleepers asleep, whoever else rings meanwhile: until it runs on,
  /// until a sleeper's own deadline (the next watch over its peers, a second at most), or, where it
  /// dies there, until its death is told.
  void ring_sleepers() {
    if (sleepers.load(std::memory_order_seq_cst) == 0) return;
    // A sleeper whose ticket comes into `newest` after this looks after this, and sees the data.
    if (newest.load(std::memory_order_seq_cst) == word.load(std::memory_order_seq_cst)) ring();
  }
  std::uint32_t ticket() const { return word.load(std::memory_order_seq_cst); }
  /// The same for a thread that is about to look, and then to sleep.
  std::uint32_t take_ticket() {
    const std::uint32_t ticket = this->ticket();
    std::uint32_t known = newest.load(std::memory_order_seq_cst);
    // Numbers go around; an older ticket sleeps through no ring.
    while (static_cast<std::int32_t>(ticket - known) > 0 &&
           !newest.compare_exchange_weak(known, ticket, std::memory_order_seq_cst)) {
    }
    return ticket;
  }
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// Counts its owner among a doorbell's sleepers.
class Sleeper {
 public:
  explicit Sleeper(Doorbell& doorbell) : doorbell_(doorbell) {
    doorbell_.sleepers.fetch_add(1, std::memory_order_seq_cst);
  }
  ~Sleeper() { doorbell_.sleepers.fetch_sub(1, std::memory_order_seq_cst); }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

 private:
  Doorbell& doorbell_;
};

}  // namespace dtrun::collectives::cpu
