// Channel: the bytes from one rank to another, of one group and lane, in order. Neither side ever
// blocks: a call moves what can be moved now. A shared-memory ring, a TCP connection or several of
// them behind the same two classes. Used under the group's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dtrun/base/error.h"

namespace dtrun::collectives::cpu {

/// What goes on different lanes does not wait for each other: short collectives (prompt), long ones
/// (bulk), and messages from one rank to another.
enum class Lane : std::uint8_t { prompt, bulk, point_to_point };
inline constexpr int kLanes = 3;
/// The first of them.
inline constexpr int kCollectiveLanes = 2;

using Bytes = std::span<const std::byte>;

struct Letter;

class SendChannel {
 public:
  virtual ~SendChannel() = default;
  /// A message begins: its header is written next, then a payload of that length.
  virtual void begin(std::size_t /*payload*/) {}
  /// Takes from the front of `first`, then of `second`. Returns how many bytes it took. The next
  /// call brings the rest of them, from where they are: more may have been read than was taken.
  virtual std::size_t write(Bytes first, Bytes second) = 0;
  /// All of a message for which has_room() is true, shown as a letter, too. Its receiver may sleep
  /// on until wake().
  virtual void write_letter(const Letter&, Bytes /*message*/) {}
  /// After write_letter(), and a mutex that was taken since.
  virtual void wake() {}
  /// Whether write() would take so many bytes now, as far as shared memory tells.
  virtual bool has_room(std::size_t) { return false; }
  /// The connection has ended; nothing more will be taken.
  virtual bool broken() const { return false; }

  // A large payload need not be written: it is lent, and the reader fetches it from where it lies.
  /// Whether the reader would fetch this.
  virtual bool can_lend(Bytes) const { return false; }
  /// So many bytes are lent unless their sender knows better.
  virtual std::size_t least_lent() const { return 0; }
  /// The payload of the message whose header was written last. @return its number
  virtual std::uint64_t lend() { return 0; }
  virtual bool is_returned(std::uint64_t) const { return true; }
  /// Payloads that are not returned yet are no more to be used.
  virtual void withdraw() {}
};

class ReceiveChannel {
 public:
  virtual ~ReceiveChannel() = default;
  /// A message's header was read; a payload of that length follows it.
  virtual void begin(std::size_t /*payload*/) {}
  /// Fills the front of `target`. Returns how many bytes came. The next call brings the rest of it,
  /// in which bytes may lie that come behind those that are still to come.
  virtual std::size_t read(std::span<std::byte> target) = 0;
  /// The same of a payload that was lent, from that address on.
  virtual std::size_t fetch(std::span<std::byte>, std::uint64_t) {
    throw base::Error(base::ErrorCode::kProtocol,
                      "a message over TCP says that its bytes are lent");
  }
  /// All of the lent payload that came first was fetched.
  virtual void give_back() {}
  /// has() is true of no more.
  virtual std::size_t most_at_once() const { return 0; }
  /// Whether read() would give so many bytes now. A connection reads them ahead.
  virtual bool has(std::size_t) { return false; }
  /// The next bytes where they lie, of which has() is true. @return null: not in one piece
  virtual const std::byte* front(std::size_t) { return nullptr; }
  /// The message that begins with the next byte, where it is there as a letter. @return null:
  /// nothing has come, or not so
  virtual const Letter* see_letter() { return nullptr; }
  /// Drops what see_letter() has shown.
  virtual void drop_letter() {}
  /// Drops what front() has shown, and fills `target` with what follows. has() is true of both.
  virtual void read_behind(std::size_t /*shown*/, std::span<std::byte> /*target*/) {}
  /// The connection has ended; nothing more will come.
  virtual bool broken() const { return false; }
  /// Nothing is there now. Of shared memory only, where what was sent can be seen at once.
  virtual bool empty() const { return true; }
};

}  // namespace dtrun::collectives::cpu
