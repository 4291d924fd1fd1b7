// SimulatedCuda: devices whose memory is the host's, behind a CudaApi and a BlasApi. Work is queued
// per stream and runs only where something waits for it, or where run_some() lets it: what is used
// before its order says so is seen. One at a time in a process. Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cuda/blas_api.h"
#include "dtrun/tensor/cuda_api.h"

namespace dtrun::tensors::cuda {

class SimulatedCuda {
 public:
  struct Options {
    int devices = 2;
    std::size_t bytes = std::size_t{1} << 28;  ///< of each device
  };
  explicit SimulatedCuda(Options options);
  SimulatedCuda() : SimulatedCuda(Options{}) {}
  ~SimulatedCuda();
  SimulatedCuda(const SimulatedCuda&) = delete;
  SimulatedCuda& operator=(const SimulatedCuda&) = delete;

  static const CudaApi& api();
  static const BlasApi& blas();

  /// The next call of that name (CudaApi's) fails.
  void fail_next(const std::string& call, Status status);
  /// From now on every call fails, as after a kernel's fault.
  void break_context();
  /// Runs at most `steps` pieces of queued work, of streams chosen at random.
  void run_some(std::mt19937& random, int steps);
  /// The names of the calls since the last clear_calls(), without queries and device changes.
  std::vector<std::string> calls();
  void clear_calls();
  std::size_t bytes_in_use(int device);
  int live_events();

 private:
  friend struct SimulatedCalls;
  struct Event {
    int device;
    int recorded = 0;  ///< how often
    int passed = 0;
    bool destroyed = false;               ///< CUDA, too, keeps what somebody waits for
    std::pair<int, StreamHandle> stream;  ///< of the last record
  };
  struct Step {
    std::function<void()> work;
    EventHandle wait_for = nullptr;
    int wait_version = 0;
  };
  using StreamKey = std::pair<int, StreamHandle>;

  Status begin(const char* call);
  bool may_run(const Step& step) const;
  bool run_one(const StreamKey& key);
  void advance(const StreamKey& key);
  void drain(const StreamKey& key);
  void finish(EventHandle event);
  void drain_device(int device);
  Status enqueue(StreamHandle stream, std::function<void()> work);
  StreamKey key_of(StreamHandle stream) const;
  static int& current_device_of_thread();

  const Options options_;
  std::recursive_mutex mutex_;  ///< work may run inside a call that waits for it
  std::map<StreamKey, std::deque<Step>> streams_;
  std::map<EventHandle, Event> events_;
  std::map<void*, std::pair<std::size_t, int>> memory_;  ///< bytes and device
  std::set<void*> pinned_;
  std::set<int> contexts_;  ///< devices that the process has made current, or used
  std::vector<std::size_t> used_;
  std::map<std::string, Status> failures_;
  std::vector<std::string> calls_;
  Status last_error_ = Status::success;
  bool broken_ = false;
  std::uintptr_t next_handle_ = 0x1000;
};

}  // namespace dtrun::tensors::cuda
