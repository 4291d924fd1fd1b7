// MessageLibrary: what a foreign message library does for one group, in blocking calls: messages
// between pairs of ranks, and the collectives whose algorithms are the library's own.
// AdapterBackend makes a Backend of it; gloo/ and mpi/ implement it, and only they know their
// library. Ranks are the group's. Thread-safe: messages may be started and awaited by several
// threads at once; the collectives come from one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dtrun/base/deadline.h"
#include "dtrun/collectives/backend.h"
#include "dtrun/collectives/process_group.h"
#include "dtrun/tensor/reduce_kernel.h"
#include "group_failure.h"

namespace dtrun::collectives::adapter {

// How a wait ends before its operation has.
/// The deadline passed; the peers that were waited for, as far as they are known.
struct Late {
  std::vector<int> peers;
};
/// The peer's end came without a word.
struct PeerLost {
  int peer;
};
/// The peer has left the group.
struct PeerLeft {
  int peer;
};
/// The group has failed, by another rank's word.
struct GroupFailed {
  GroupFailure failure;
};
/// This rank itself has called fail() or leave().
struct Interrupted {};

/// Messages of different kinds never meet. Of one kind, messages between two ranks with the same
/// tag keep their order.
enum class MessageKind : std::uint8_t { call, data, header, payload };

/// A message in flight. Its memory must outlive it. One that may not have arrived is not destroyed
/// but handed to keep().
class MessageInFlight {
 public:
  virtual ~MessageInFlight() = default;
  /// @return the peer. @throws what stands above
  virtual int wait(base::Deadline deadline) = 0;
};

class MessageLibrary {
 public:
  virtual ~MessageLibrary() = default;
  virtual std::string name() const = 0;

  virtual std::unique_ptr<MessageInFlight> send(const void* data, std::size_t bytes, int peer,
                                                MessageKind kind, std::uint32_t tag) = 0;
  /// @param peer -1: any, in which case all receives of this kind and tag are for any
  virtual std::unique_ptr<MessageInFlight> receive(void* data, std::size_t bytes, int peer,
                                                   MessageKind kind, std::uint32_t tag) = 0;
  /// The largest tag of a message. @throws nothing
  virtual std::uint32_t largest_tag() const = 0;

  // Only for groups of at least two ranks and buffers that are not empty; all ranks agree about
  // counts and dtype already.
  virtual void broadcast(Buffer buffer, int source, base::Deadline deadline) = 0;
  virtual void all_reduce(Buffer buffer, tensors::CombineOp op, base::Deadline deadline) = 0;
  /// `output`: on every rank, of the input's count; only the destination's is a result.
  virtual void reduce(Buffer input, Buffer output, int destination, tensors::CombineOp op,
                      base::Deadline deadline) = 0;

  /// Collective over the whole group. @param child of the new group, its store already its own
  /// @param ranks in this group, in the new group's order; empty: this rank is in none, and gets
  /// null
  virtual std::unique_ptr<MessageLibrary> split(const GroupOptions& child,
                                                const std::vector<int>& ranks, int list_index,
                                                base::Deadline deadline) = 0;

  /// Wakes all waits of this rank, and tells the other members why. Idempotent; never throws.
  virtual void fail(const GroupFailure& failure) = 0;
  /// As fail(), but the others hear that this rank has left. Never throws.
  virtual void leave() = 0;
  /// How long who leaves waits for the others' farewells, so that nothing is lost on its way.
  virtual base::Deadline::Duration patience() const = 0;
  /// The messages and memory of an operation that has failed: kept for as long as the library may
  /// still touch them, which is at most until this object's end or, where it never stops, the
  /// process's.
  virtual void keep(std::shared_ptr<void> buffers) = 0;
};

}  // namespace dtrun::collectives::adapter
