// Backend: what carries out collectives on raw buffers. ProcessGroup checks arguments, makes
// buffers contiguous and builds the fingerprint; a Backend moves and reduces bytes. One per group
// and device type, owned by its ProcessGroup. Calls of one group come from one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dtrun/base/deadline.h"
#include "dtrun/base/error.h"
#include "dtrun/collectives/call_timer.h"
#include "dtrun/collectives/fingerprint.h"
#include "dtrun/collectives/planned_call.h"
#include "dtrun/collectives/reduce_op.h"
#include "dtrun/collectives/work.h"
#include "dtrun/tensor/device.h"
#include "dtrun/tensor/dtype.h"

namespace dtrun::tensors {
class HostAllocator;
}

namespace dtrun::collectives {

/// Elements of one dtype, contiguous; empty is fine (data may then be null).
struct Buffer {
  void* data = nullptr;
  std::int64_t count = 0;
  tensors::DType dtype = tensors::DType::u8;
  int device_index = 0;  ///< of the memory; 0 for the cpu
  std::size_t bytes() const { return static_cast<std::size_t>(count) * tensors::item_size(dtype); }
};

/// What every call carries.
struct Call {
  Fingerprint fingerprint;
  base::Deadline deadline = base::Deadline::never();
  bool async = false;
  /// Of a premul_sum, for a backend that scales_inputs(); for others the inputs are scaled already,
  /// and are to be summed.
  double factor = 1;
  /// Kept until the operation is done: tensors and temporary copies.
  std::shared_ptr<void> keep_alive = nullptr;
  /// Runs once when the operation has succeeded, before it counts as done, on the thread that
  /// finished it: copies results out of temporaries. May be empty.
  std::function<void()> finish = nullptr;
  /// The backend ends it when the operation is over.
  CallTimer timer = {};
};

class ShortCall;

/// Of an all_to_all whose plan all ranks know: whose parts the lists have, in the order that begins
/// at the right neighbour. Those of the other ranks are empty, and stand in no list.
struct PartPeers {
  std::span<const int> of_inputs;
  std::span<const int> of_outputs;
};

/// A collective without its ownership: what all ranks must agree on, and this rank's buffers.
struct CollectiveView {
  const Fingerprint& fingerprint;
  std::span<const Buffer> inputs;
  std::span<const Buffer> outputs;
  /// Of a call that goes a short way, where its group counts it; null: nowhere.
  ShortCall* short_call = nullptr;
  /// null: lists are as Collective says.
  const PartPeers* peers = nullptr;

  OpKind kind() const { return fingerprint.kind; }
  /// Source or destination, group rank; -1: none.
  int root() const { return fingerprint.root; }
  ReduceOp op() const { return fingerprint.reduce_op; }
  /// Of all buffers; an input that is an output, too, counts once.
  std::uint64_t bytes() const;
};

/// One collective. Kind, root and reduce op stand in the call's fingerprint, which the peers see,
/// and nowhere else. What a rank gives is an input, what it gets an output; lists have one buffer
/// per rank, in rank order. Buffers may be empty, and those of a list of different counts.
///
/// | kind           | inputs               | outputs                |
/// |----------------|----------------------|------------------------|
/// | broadcast      | at the root: one     | elsewhere: one         |
/// | all_reduce     | one                  | one                    |
/// | reduce         | one                  | at the root: one       |
/// | all_gather     | one                  | a list                 |
/// | gather         | one                  | at the root: a list    |
/// | scatter        | at the root: a list  | one                    |
/// | reduce_scatter | a list               | one                    |
/// | all_to_all     | a list               | a list                 |
/// | barrier        | none                 | none                   |
///
/// No output overlaps an input, except that this rank's own part may be one buffer on both sides.
/// No other input is written to.
struct Collective {
  std::vector<Buffer> inputs;
  std::vector<Buffer> outputs;
  Call call;

  CollectiveView view() const { return {call.fingerprint, inputs, outputs}; }
  OpKind kind() const { return call.fingerprint.kind; }
  int root() const { return call.fingerprint.root; }
  ReduceOp op() const { return call.fingerprint.reduce_op; }
};

/// One message between two ranks.
struct Message {
  OpKind kind = OpKind::send;  ///< or receive
  Buffer buffer;
  int peer = 0;  ///< -1 for a receive from any rank; Work::source_rank() tells which
  std::uint32_t tag = 0;
  Call call;
};

/// The same without its ownership, for a message that may be over at once.
struct ShortMessage {
  const Fingerprint& fingerprint;
  Buffer buffer;
  int peer = 0;
  std::uint32_t tag = 0;
  ShortCall& short_call;
  bool is_done = false;
};

/// Bytes moved by this rank for this group, by transport.
struct TransportCounters {
  std::uint64_t shared_memory_bytes_sent = 0;
  std::uint64_t shared_memory_bytes_received = 0;
  std::uint64_t tcp_bytes_sent = 0;
  std::uint64_t tcp_bytes_received = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;
  /// Of the buffers that it takes.
  virtual tensors::DeviceType device_type() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Why the backend cannot do such a call, by its kind, dtype and reduce op: kUnavailable;
  /// nullopt: it can. Asked before each call, so that peers are told.
  virtual std::optional<base::Error> lacks(const Fingerprint& fingerprint) const {
    static_cast<void>(fingerprint);
    return std::nullopt;
  }

  /// Whether it multiplies the inputs of a premul_sum itself, which saves a copy of them.
  virtual bool scales_inputs() const { return false; }

  // Ranks are the group's. Both return a Work that is done already unless call.async.
  virtual Work start(Collective collective) = 0;
  virtual Work start(Message message) = 0;

  /// Sends what finds room and takes what comes within moments, in that order. What is not done
  /// then, and every message of a backend without such a way, is still to be started.
  virtual void exchange_now(std::span<ShortMessage>) {}
  /// Asynchronous messages whose order must not matter. @return a Work each, in that order
  virtual std::vector<Work> exchange(std::vector<Message> messages);

  /// Collective over this group: makes the group of those ranks, all of which pass the same list;
  /// ranks of no list pass an empty one and get null. @param list_index tells the lists of one call
  /// apart
  virtual std::unique_ptr<Backend> split(const std::vector<int>& ranks, int list_index,
                                         const std::string& name, Call call) = 0;
  /// Carries out a blocking collective on buffers that need no copies, if this backend has a short
  /// way for it, with less around it than a Call. @return false: nothing was done
  virtual bool run_now(const CollectiveView&, base::Deadline::Duration) { return false; }
  /// Tells the members that this rank's call failed before the backend saw it: they fail as well.
  virtual void reject(const Fingerprint& fingerprint, const base::Error& error) = 0;
  /// Ends the group: what is in flight here and on the members, and every later call, fails with
  /// that error. From any thread, also while others are in a call. A group that has failed already
  /// keeps its first error. @throws Error kUsage in a forked child
  virtual void abort(const base::Error& error) = 0;

  virtual TransportCounters counters() const = 0;
  /// What this rank would send in such a call of tensors in ordinary memory, as counters() count
  /// it. nullopt: the backend cannot tell.
  virtual std::optional<std::int64_t> bytes_to_send(const PlannedCall&) const {
    return std::nullopt;
  }
  /// A number for each rank of the group, the same on all ranks: equal ones share memory. Empty:
  /// not known.
  virtual std::vector<int> machines() const { return {}; }
  /// Whose tensors the ranks of this machine read where they lie. nullptr: there is no such memory.
  /// Thread-safe. @throws Error kSystem
  virtual std::shared_ptr<tensors::HostAllocator> shared_memory() { return nullptr; }
  /// Group ranks that have ended or have left, in their order, as far as this backend can tell now.
  virtual std::vector<int> ended_ranks() { return {}; }
  /// Waits for sends in flight, tells the peers that this rank leaves. Idempotent; never throws for
  /// a peer's death.
  virtual void shutdown() = 0;
};

}  // namespace dtrun::collectives
