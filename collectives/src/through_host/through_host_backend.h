// ThroughHostBackend: collectives on CUDA tensors through pinned host memory, over another backend:
// any number of ranks may share a GPU, which NCCL refuses. A call waits for the caller's stream; it
// returns, or its Work is done, when the results are on the device.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dtrun/collectives/backend.h"
#include "through_host/host_images.h"

namespace dtrun::collectives::through_host {

class ThroughHostBackend : public Backend {
 public:
  /// @param host its buffers are host memory
  ThroughHostBackend(std::unique_ptr<Backend> host, std::shared_ptr<DeviceApi> device,
                     std::shared_ptr<PinnedPool> pool);
  ~ThroughHostBackend() override;

  std::string name() const override { return "staged"; }
  tensors::DeviceType device_type() const override { return tensors::DeviceType::cuda; }
  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  std::optional<base::Error> lacks(const Fingerprint& fingerprint) const override {
    return host_->lacks(fingerprint);
  }

  /// After a barrier, also what the ranks' streams had before it is done.
  Work start(Collective collective) override;
  Work start(Message message) override;

  std::unique_ptr<Backend> split(const std::vector<int>& ranks, int list_index,
                                 const std::string& name, Call call) override;
  void reject(const Fingerprint& fingerprint, const base::Error& error) override {
    host_->reject(fingerprint, error);
  }
  void abort(const base::Error& error) override { host_->abort(error); }
  TransportCounters counters() const override { return host_->counters(); }
  std::vector<int> ended_ranks() override { return host_->ended_ranks(); }
  void shutdown() override { host_->shutdown(); }

 private:
  HostImages images_of(int device, Call call);
  int device_of(const CollectiveView& collective) const;

  const std::unique_ptr<Backend> host_;
  const std::shared_ptr<DeviceApi> device_;
  const std::shared_ptr<PinnedPool> pool_;
  std::mutex mutex_;                                    ///< of streams_
  std::map<int, std::shared_ptr<CopyStream>> streams_;  ///< by device
};

}  // namespace dtrun::collectives::through_host
