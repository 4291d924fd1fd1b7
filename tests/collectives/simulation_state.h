// What the ranks of a simulation share: streams, events, communicators, and what runs on the GPUs.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/nccl_simulation.h"
#include "collectives/simulated_clique.h"

namespace dtrun::test {

struct SimulatedEvent {
  std::uint64_t recorded = 0;  ///< how often
  std::uint64_t passed = 0;    ///< the last record that the stream has come to
};

struct NcclSimulation::State {
  using Lock = std::unique_lock<std::mutex>;

  explicit State(Options given) : options(given) {}

  const Options options;
  std::mutex mutex;
  std::condition_variable changed;
  bool frozen = false;
  bool aborts_hang = false;
  std::vector<std::string> violations;
  std::map<int, std::vector<std::string>> calls;
  std::map<int, collectives::nccl::Result> broken;
  std::map<std::string, std::shared_ptr<simulated::Clique>> meetings;
  std::vector<std::unique_ptr<simulated::End>> ends;
  std::vector<std::unique_ptr<simulated::Stream>> streams;
  std::vector<std::unique_ptr<SimulatedEvent>> events;
  std::map<int, simulated::Stream*> default_streams;
  std::map<std::pair<int, std::thread::id>, int> current_devices;
  std::map<int, int> made_beside_kernels;  ///< communicators, by rank
  int ids = 0;

  void note(int rank, std::string call) { calls[rank].push_back(std::move(call)); }
  void violate(int rank, const std::string& what) {
    violations.push_back("rank " + std::to_string(rank) + ": " + what);
  }
  /// Of the calling thread.
  int& current_device(int rank) { return current_devices[{rank, std::this_thread::get_id()}]; }

  simulated::Stream* make_stream();
  /// The null stream is the rank's default one.
  simulated::Stream& stream(int rank, collectives::DeviceStream handle);
  /// Runs whatever can run on any stream.
  void run();

  /// Kernels of communicators that are not aborted: CUDA's calls that wait for the device wait for
  /// them.
  bool runs_kernels(int rank, int device) const;
  /// Blocks the caller, as such a call does.
  void await_idle(Lock& lock, const simulated::End& end, const std::string& who);
};

}  // namespace dtrun::test
