// ReadySockets: which of a group's TCP connections can be read anew, learned for all of them at
// once, so that a rank with many peers asks the kernel once and not once for each; and what wakes a
// sleeper, room to write too. Owned by the group's channels and used under the engine's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "dtrun/base/unique_fd.h"

namespace dtrun::collectives::cpu {

class World;

/// Who may try a connection of which nothing is known, at one look.
struct Tries {
  bool may_try = false;
  /// Only one that was added after that one may: whoever asks at each look would take all tries.
  std::ptrdiff_t after = -1;
};

/// What is known about one connection. Until it is tried, it may be ready.
class Readiness {
 public:
  /// @param tries of all connections together @param number of this one
  Readiness(Tries& tries, std::size_t number)
      : tries_(tries), number_(static_cast<std::ptrdiff_t>(number)) {}
  bool is_ready() const { return ready_ || ended_; }
  /// Also where nothing is known, if this look leaves that to whoever asks first.
  bool may_read() {
    if (!is_ready() && tries_.may_try && number_ > tries_.after) {
      tries_ = {.may_try = false, .after = number_};
      ready_ = true;
    }
    return is_ready();
  }
  bool has_ended() const { return ended_; }
  /// The kernel has no more to give; the next change is told.
  void exhaust() { ready_ = false; }
  /// @param events as epoll reports them
  void note(std::uint32_t events);

 private:
  Tries& tries_;
  const std::ptrdiff_t number_;
  bool ready_ = true;
  /// The end of a connection is told once, maybe together with its last bytes.
  bool ended_ = false;
};

class ReadySockets {
 public:
  /// @param world outlives this
  explicit ReadySockets(World& world) : world_(world) {}
  ReadySockets(const ReadySockets&) = delete;
  ReadySockets& operator=(const ReadySockets&) = delete;

  enum class Direction { in, out };  ///< out: for sleepers, a sender itself tries at each look
  /// @return kept up to date by look() for as long as this lives @throws Error kSystem
  Readiness& add(int fd, Direction direction);
  /// Brings what is known up to date: one system call, none where there are no connections.
  void look();
  /// The same for somebody who polls: where there are few connections, mostly a read of one that is
  /// not ready tries it instead, which saves the call that says so. The connections that are asked
  /// for take turns. Not before a sleep: what was read so would end it at once.
  void look_or_try();
  /// Somebody is about to sleep: the doorbell rings once one of the sockets has become ready since
  /// the last look(), or becomes so. Must be asked for before every sleep. @throws Error kSystem
  void ring_when_ready();
  /// Of those that are known, one has ended at some time.
  bool any_ended() const { return any_ended_; }

 private:
  World& world_;
  base::UniqueFd epoll_;  ///< none while there are no connections
  /// By the number that epoll reports: a descriptor that a forked child holds open goes on to be
  /// reported after it is closed here, so a report must not carry the address of a channel.
  std::deque<Readiness> sockets_;
  bool any_ended_ = false;
  Tries tries_;
  int polls_ = 0;  ///< since the last look()
};

}  // namespace dtrun::collectives::cpu
