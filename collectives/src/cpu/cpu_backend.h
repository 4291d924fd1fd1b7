// CpuBackend: collectives on host memory: shared memory between ranks of one machine, TCP between
// others. Every rank gets the same bits of a reduction, in every run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dtrun/collectives/backend.h"
#include "dtrun/collectives/process_group.h"
#include "group_engine.h"

namespace dtrun::collectives::cpu {

class CpuBackend : public Backend {
 public:
  /// Collective over the members of a new world.
  static std::unique_ptr<CpuBackend> create(const GroupOptions& options);
  CpuBackend(std::shared_ptr<World> world, GroupSpec spec, base::Deadline::Duration timeout);
  ~CpuBackend() override;

  std::string name() const override { return "cpu"; }
  tensors::DeviceType device_type() const override { return tensors::DeviceType::cpu; }
  int rank() const override { return engine_->spec().rank; }
  int size() const override { return engine_->size(); }

  Work start(Collective collective) override;
  Work start(Message message) override;
  void exchange_now(std::span<ShortMessage> messages) override;
  std::vector<Work> exchange(std::vector<Message> messages) override;

  std::unique_ptr<Backend> split(const std::vector<int>& ranks, int list_index,
                                 const std::string& name, Call call) override;
  bool run_now(const CollectiveView& collective, base::Deadline::Duration timeout) override;
  void reject(const Fingerprint& fingerprint, const base::Error& error) override;
  void abort(const base::Error& error) override { engine_->abort(error); }
  TransportCounters counters() const override { return engine_->counters(); }
  std::optional<std::int64_t> bytes_to_send(const PlannedCall& call) const override;
  std::shared_ptr<tensors::HostAllocator> shared_memory() override {
    engine_->require_own_process();
    return engine_->world()->tensor_heap();
  }
  std::vector<int> machines() const override { return engine_->machines(); }
  std::vector<int> ended_ranks() override { return engine_->ended_ranks(); }
  void shutdown() override { engine_->shutdown(); }

 private:
  std::shared_ptr<Operation> submit(Message message);
  Work finish(const std::shared_ptr<Operation>& operation);
  World::Keeps kept_for(const std::vector<int>& world_ranks) const;

  const base::Deadline::Duration timeout_;
  const std::shared_ptr<GroupEngine> engine_;
};

}  // namespace dtrun::collectives::cpu
