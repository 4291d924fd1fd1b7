// AsyncSaver: saves while the training goes on. It copies the state, then a thread of its own
// writes the copy. The ranks agree through a store, so no group of the training is used.
// torch.distributed.checkpoint.async_save.
//
//     dcp::AsyncSaver saver(worker.store(), worker.rank(), worker.world_size());
//     saver.save("runs/7/step-100", state);   // returns when the copy is made
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "dtrun/dtensor/checkpoint/checkpoint.h"

namespace dtrun::dtensor::dcp {

/// When the copy is made, which PyTorch calls staging.
enum class Staging : std::uint8_t {
  at_once,  ///< before save() returns: a step waits 21 % of the time that dcp::save() takes
  /// By the saver's thread, beside the next forward and backward pass: a step waits 0.1 % of it.
  /// Nothing of the state may be written to before wait_staged() has returned. Where an operator or
  /// an optimizer does, the save fails. Tensors on GPUs are copied at once.
  in_background,
};

struct AsyncSaveOptions {
  Existing existing = Existing::refuse;
  FileCalls* files = nullptr;
  Staging staging = Staging::at_once;
  /// Called by the saver's thread, on each rank, when the checkpoint is there. What it throws is
  /// logged.
  std::function<void()> then = nullptr;
};

/// For use by one thread. It keeps the memory of the copy, as much as the state takes, for the next
/// one.
class AsyncSaver {
 public:
  /// All ranks make theirs alike, and equally many. After a connection failed or a rank did not
  /// come in time, saves fail: make a new one, on all ranks.
  /// @param name of this rank's savers, of which each has its own place in the store
  AsyncSaver(std::shared_ptr<rendezvous::Store> store, int rank, int size,
             const std::string& name = "async");
  /// Waits for the save that is under way; an error that nobody has asked for is logged.
  ~AsyncSaver();
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;

  /// Copies the state, unless the staging says otherwise, and returns. All ranks save the same
  /// folders in the same order. A save that is under way is waited for before. @throws its Error,
  /// as wait(); then nothing was begun
  void save(const std::string& folder, const State& state, const AsyncSaveOptions& options = {});
  /// Until the copy is made: before optimizer.step(). Errors are thrown by wait().
  void wait_staged();
  /// Until the save is on the disk. @return none: there was none @throws Error as dcp::save()
  std::optional<SaveReport> wait();
  bool is_saving() const;
  int rank() const { return agreement_->rank(); }

 private:
  class Snapshot;
  struct Work;

  SaveReport write(const std::string& folder, const AsyncSaveOptions& options);

  const std::unique_ptr<StoreAgreement> agreement_;
  const std::shared_ptr<Snapshot> snapshot_;  ///< of the save that is under way
  std::unique_ptr<Work> work_;
};

}  // namespace dtrun::dtensor::dcp
