// Ranks of the nccl backend as threads over one simulation, and values to send.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "collectives/backend_calls.h"
#include "collectives/nccl_simulation.h"
#include "dtrun/rendezvous/hash_store.h"
#include "nccl/nccl_backend.h"
#include "support/thrown_error.h"

namespace dtrun::test {

using base::Deadline;
using base::Error;
using base::ErrorCode;
using collectives::nccl::HostWait;
using collectives::nccl::NcclBackend;
using collectives::nccl::NcclGroup;
using collectives::nccl::NcclGroupSpec;
using collectives::nccl::NcclWorld;
using tensors::DType;
using testing_support::contains;
using testing_support::error_of;

using Values = std::vector<std::int64_t>;

struct NcclJob {
  explicit NcclJob(int ranks, NcclSimulation::Options options = {})
      : size(ranks), simulation(options), records(static_cast<std::size_t>(ranks)) {}

  /// What NCCL kept goes on a thread that nobody joins: its last steps are waited for, since they
  /// use the simulation, and since the sanitizers look at what is left when the process ends.
  ~NcclJob() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(
        world_gone_.wait_for(lock, std::chrono::seconds(60), [this] { return worlds_ == 0; }))
        << worlds_ << " worlds are still held";
  }

  const int size;
  NcclSimulation simulation;
  /// By rank, once it has a backend.
  std::vector<std::shared_ptr<collectives::RankRecord>> records;
  std::shared_ptr<rendezvous::Store> store = rendezvous::make_hash_store();
  Deadline::Duration timeout = std::chrono::seconds(60);
  HostWait host_wait = HostWait::no;
  bool compare_calls = false;
  std::optional<std::chrono::milliseconds> abort_patience = std::nullopt;
  std::optional<std::chrono::milliseconds> quiet_patience = std::nullopt;
  std::shared_ptr<rendezvous::JobPage> job_page = nullptr;
  tensors::DeviceType tensors_of = tensors::DeviceType::cuda;

  std::unique_ptr<Backend> backend(int rank) {
    NcclGroupSpec spec;
    spec.name = "world";
    spec.rank = rank;
    spec.timeout = timeout;
    spec.global_ranks.resize(static_cast<std::size_t>(size));
    std::iota(spec.global_ranks.begin(), spec.global_ranks.end(), 0);
    return backend(std::move(spec), store);
  }

  /// Of some of the ranks, as make_nccl_backend() makes it.
  std::unique_ptr<Backend> backend(NcclGroupSpec spec, std::shared_ptr<rendezvous::Store> meeting) {
    const int rank = spec.global_ranks[static_cast<std::size_t>(spec.rank)];
    const std::shared_ptr<NcclWorld> world = make_world();
    world->nccl = simulation.nccl_of(rank);
    world->device = simulation.device_of(rank);
    world->store = std::move(meeting);
    world->job_page = job_page;
    world->record = std::make_shared<collectives::RankRecord>(job_page, rank);
    records[static_cast<std::size_t>(rank)] = world->record;
    world->tensors_of = tensors_of;
    world->host = "n0";
    world->machine = "machine";
    world->host_wait = host_wait;
    world->compare_calls = compare_calls;
    world->abort_patience = abort_patience.value_or(world->abort_patience);
    world->quiet_patience = quiet_patience.value_or(world->quiet_patience);
    spec.key = "nccl";
    return std::make_unique<NcclBackend>(std::make_shared<NcclGroup>(world, std::move(spec)));
  }

  /// Runs the body on every rank. @return what each rank's body threw
  std::vector<std::optional<Error>> run(const std::function<void(Backend&)>& body) {
    return run_owners([&](std::unique_ptr<Backend> backend) { body(*backend); });
  }
  std::vector<std::optional<Error>> run_owners(
      const std::function<void(std::unique_ptr<Backend>)>& body) {
    std::vector<std::optional<Error>> thrown(static_cast<std::size_t>(size));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank)
      threads.emplace_back([&, rank] {
        thrown[static_cast<std::size_t>(rank)] = error_of([&] { body(backend(rank)); });
      });
    for (std::thread& thread : threads) thread.join();
    return thrown;
  }

  /// All ranks must return, and NCCL must have been treated well.
  void run_well(const std::function<void(Backend&)>& body) { expect_well(run(body)); }
  void expect_well(const std::vector<std::optional<Error>>& thrown) {
    for (const std::optional<Error>& error : thrown) EXPECT_FALSE(error) << error->what();
    for (const std::string& violation : simulation.violations()) ADD_FAILURE() << violation;
    for (int rank = 0; rank < size; ++rank) EXPECT_EQ(simulation.count(rank, "abort"), 0);
  }

 private:
  std::shared_ptr<NcclWorld> make_world() {
    {
      const std::scoped_lock lock(mutex_);
      ++worlds_;
    }
    return {new NcclWorld, [this](const NcclWorld* world) {
              delete world;
              const std::scoped_lock lock(mutex_);
              --worlds_;
              world_gone_.notify_all();
            }};
  }

  std::mutex mutex_;
  std::condition_variable world_gone_;
  int worlds_ = 0;
};

inline Buffer buffer_of(Values& values) {
  return {values.data(), static_cast<std::int64_t>(values.size()), DType::i64};
}
inline std::vector<Buffer> buffers_of(std::vector<Values>& lists) {
  std::vector<Buffer> buffers;
  for (Values& values : lists) buffers.push_back(buffer_of(values));
  return buffers;
}

inline Call call_of(OpKind kind, std::uint64_t sequence,
                    Deadline deadline = Deadline::after(std::chrono::seconds(60))) {
  Call call;
  call.fingerprint.kind = kind;
  call.fingerprint.sequence = sequence;
  call.fingerprint.dtype = DType::i64;
  call.deadline = deadline;
  return call;
}
inline Call async_call(OpKind kind, std::uint64_t sequence) {
  Call call = call_of(kind, sequence);
  call.async = true;
  return call;
}

}  // namespace dtrun::test
