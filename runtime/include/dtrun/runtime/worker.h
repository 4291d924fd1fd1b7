// Worker: one rank's place in the job: its numbers, its store, its world group. `Worker worker =
// dtrun::init();` owns the world; groups, meshes and tensors hang off it. Move-only; teardown is in
// its destructor. Nothing here is process-wide, so N ranks can live as N threads of one process.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "dtrun/base/deadline.h"
#include "dtrun/base/env.h"
#include "dtrun/collectives/process_group.h"
#include "dtrun/rendezvous/store.h"
#include "dtrun/rendezvous/worker_env.h"
#include "dtrun/tensor/device.h"

namespace dtrun::runtime {

struct InitOptions {
  /// "cpu", "gloo", "mpi", "nccl", "staged", or one per device: "cpu:cpu,cuda:nccl".
  std::string backend = "cpu";
  /// How the ranks meet. "env://": at the store of MASTER_ADDR and MASTER_PORT. "tcp://HOST:PORT":
  /// rank 0 serves the store there. "file:///PATH": at a file that all ranks can reach. Each may
  /// end in "?rank=R&world_size=N".
  std::string init_method = "env://";
  int rank = -1;        ///< -1: that of the init method, else RANK of the environment
  int world_size = -1;  ///< -1: that of the init method, else WORLD_SIZE of the environment
  /// How many worlds of this job the rank has been in before, equal on all ranks: each world has
  /// keys of its own in the launcher's store.
  int generation = 0;
  /// The time limit of joining, and the default of every collective.
  base::Deadline::Duration timeout = std::chrono::minutes(30);
  /// Ranks with different texts share no memory, as on two machines: for measurements.
  std::string machine = {};
  /// Which ways collectives go, and what links cost; nullopt: DTRUN_COST_TABLE names its file, if
  /// it is set.
  std::optional<collectives::CostTable> costs = std::nullopt;
  /// Default: this process's environment.
  base::Environment environment = base::Environment::current();
};

class Worker {
 public:
  Worker(Worker&&) noexcept;
  Worker& operator=(Worker&&) noexcept;
  /// Leaves the world: flushes sends, tells the peers, closes the store.
  ~Worker();

  int rank() const;
  int local_rank() const;
  int world_size() const;
  int local_world_size() const;
  const rendezvous::WorkerEnv& env() const;
  /// Where the backend serves CUDA tensors: the GPU whose number is the local rank; with the
  /// backend staged local ranks take the GPUs in turn. Else the cpu.
  tensors::Device device() const;
  const std::shared_ptr<rendezvous::Store>& store() const;
  /// All ranks.
  const collectives::ProcessGroup& world() const;

 private:
  friend Worker init(InitOptions options);
  struct Impl;
  explicit Worker(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Joins the job that the environment describes. Collective over the world.
/// @throws Error kUsage naming every missing variable, kTimeout naming who is missing, kPeerFailed
Worker init(InitOptions options = {});

}  // namespace dtrun::runtime
