// NcclBackend: collectives on CUDA tensors by NCCL, one GPU per rank. A call enqueues and returns:
// what the caller's stream does next waits for it, the calling thread does not, except in a
// barrier, in a wait with a deadline, and while a communicator is being made, which happens on the
// first collective of a group, or the first message between two ranks. After a failure, results of
// unfinished calls are garbage until a call has thrown it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dtrun/collectives/backend.h"
#include "nccl/composition.h"
#include "nccl/nccl_group.h"

namespace dtrun::collectives::nccl {

class NcclBackend : public Backend {
 public:
  explicit NcclBackend(std::shared_ptr<NcclGroup> group);
  ~NcclBackend() override;

  std::string name() const override { return "nccl"; }
  tensors::DeviceType device_type() const override { return group_->world().tensors_of; }
  int rank() const override { return group_->spec().rank; }
  int size() const override { return group_->size(); }

  std::optional<base::Error> lacks(const Fingerprint& fingerprint) const override;

  bool scales_inputs() const override { return true; }

  Work start(Collective collective) override;
  Work start(Message message) override;
  /// One group of calls for each device on the group's communicator, if that is there: in the order
  /// of the group's collectives, and met by batches. Else, each by itself.
  std::vector<Work> exchange(std::vector<Message> messages) override;

  std::unique_ptr<Backend> split(const std::vector<int>& ranks, int list_index,
                                 const std::string& name, Call call) override;
  void reject(const Fingerprint& fingerprint, const base::Error& error) override;
  void abort(const base::Error& error) override { group_->abort(error); }
  TransportCounters counters() const override { return {}; }
  void shutdown() override { group_->shutdown(); }

 private:
  Composer composer(int device) const;
  /// @throws Error kUnavailable for what NCCL cannot do
  static void require_possible(const Message& message);
  /// Where it runs. @throws Error kInvalidArgument for buffers on several GPUs
  int device_of(const CollectiveView& collective) const;

  const std::shared_ptr<NcclGroup> group_;
};

}  // namespace dtrun::collectives::nccl
