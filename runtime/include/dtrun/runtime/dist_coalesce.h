// dist::Coalesce: a scope whose calls are started together, as torch.distributed's
// _coalescing_manager. Its tensors stay where they are: nothing is flattened.
//
//   dist::Coalesce together(group);
//   for (const Tensor& each : gradients) dist::all_reduce(each, ReduceOp::avg, {.group = group});
//   together.end().wait();
//
// Until end() the collectives and messages of dist:: in that group only make a list; a tensor is
// read at end(). Calls that make groups or meshes run at once. The list holds collectives of one
// kind, each with its own reduce op, root, factor and timeout, or isend() and irecv(), which become
// one batch_isend_irecv(). What does not fit throws Error kUsage and is left out of the list: calls
// of another kind, and those that cannot wait (barrier, monitored_barrier, send, recv, calls of
// objects, *_coalesced). Calls in other groups run at once, as do those of ProcessGroup's and
// DTensor's functions. A scope belongs to the thread that made it; a group has one at a time.
//
// A scope that is left by an exception forgets its calls: nothing of them was sent, and the group
// can be used. One that is left without an exception and without end() aborts its group, as
// ProcessGroup::abort(): results are missing that the program takes to be there.
#pragma once

#include <cstddef>
#include <memory>

#include "dtrun/runtime/dist.h"

namespace dtrun::dist {

class Recording;

class Coalesce {
 public:
  /// @param group default: the world @throws Error kUsage where the group has a scope on this
  /// thread already, and as any call of dist::
  explicit Coalesce(const ProcessGroup& group = {}, Site site = Site::current());
  ~Coalesce();
  Coalesce(const Coalesce&) = delete;
  Coalesce& operator=(const Coalesce&) = delete;
  static void* operator new(std::size_t) = delete;  // scopes nest

  /// Starts all calls in the order in which they were made; later calls are no longer listed.
  /// On the thread that made the scope. @return the Work of all of them. Those that the calls have
  /// returned are each call's own: before end() their wait() throws Error kUsage. @throws what a
  /// call throws that cannot start, which ends this scope: those before it are in flight, those
  /// behind it fail with the same error
  [[nodiscard]] Work end();

 private:
  const int exceptions_;
  std::unique_ptr<Recording> recording_;  ///< null: has ended
};

}  // namespace dtrun::dist
