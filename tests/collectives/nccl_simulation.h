// NcclSimulation: GPUs and NCCL in host memory, for ranks that are threads: streams are queues that
// run in their order, events pass when a stream has come to them, communicators are made when all
// ranks have asked, and collectives move real bytes once all ranks' streams are at them. Kernels of
// a device run beside one another, and hang until their peers come or they are aborted. What CUDA
// makes wait for all of them waits: a communicator is not made meanwhile, and abort and destroy
// block their caller. It does not forgive: calls that NCCL forbids, and those that stand behind a
// kernel for too long, are written down as violations. Thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device_api.h"
#include "nccl/nccl_api.h"

namespace dtrun::test {

class NcclSimulation {
 public:
  struct Options {
    int devices = 1;        ///< that each rank sees
    bool one_gpu = false;   ///< all ranks see the same one
    int busy_polls = 3;     ///< how often a call says in_progress before it is done
    bool init_ends = true;  ///< false: communicators are never made
    bool has_streams = true;
    bool runs_at_once =
        false;            ///< what run_on() gets, as on CUDA; else when the stream comes to it
    int version = 22809;  ///< from 22200 on aborts in a group of calls free at its end
    /// How long a NCCL call is on its way to the device.
    std::chrono::microseconds enqueue_time{0};
    /// How long a call stands behind a kernel that does not end.
    std::chrono::milliseconds patience = std::chrono::seconds(10);
  };

  NcclSimulation() : NcclSimulation(Options{}) {}
  explicit NcclSimulation(Options options);
  ~NcclSimulation();

  std::shared_ptr<collectives::DeviceApi> device_of(int rank);
  std::shared_ptr<collectives::nccl::NcclApi> nccl_of(int rank);

  /// Nothing runs on the devices until it is thawed.
  void freeze(bool frozen);
  /// From now on an abort returns only when this is taken back.
  void hang_aborts(bool hang);
  /// How many of its communicators that rank began to make while a kernel ran on their device.
  int made_beside_kernels(int rank);
  /// What that rank's communicators answer from now on.
  void break_rank(int rank, collectives::nccl::Result result);

  /// "rank 1: an event was recorded while NCCL was at it".
  std::vector<std::string> violations();
  /// That rank's calls, in their order: "record", "make_wait", "all_reduce", ...
  std::vector<std::string> calls(int rank);
  int count(int rank, const std::string& call);

  struct State;

 private:
  const std::shared_ptr<State> state_;
};

}  // namespace dtrun::test
