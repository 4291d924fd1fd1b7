#include "dtrun/runtime/simulate.h"

#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "current_world.h"
#include "dtrun/base/error.h"
#include "dtrun/base/user_frame.h"
#include "dtrun/rendezvous/worker_env.h"
#include "simulated_place.h"

namespace dtrun::runtime {
namespace {

using base::Error;
using base::ErrorCode;

rendezvous::WorkerEnv worker_env(int rank, int ranks, int ranks_per_node) {
  rendezvous::WorkerEnv worker;
  worker.rank = worker.role_rank = rank;
  worker.world_size = worker.role_world_size = ranks;
  worker.local_rank = rank % ranks_per_node;
  worker.group_rank = rank / ranks_per_node;
  worker.group_world_size = (ranks + ranks_per_node - 1) / ranks_per_node;
  worker.local_world_size = std::min(ranks_per_node, ranks - worker.group_rank * ranks_per_node);
  worker.master_addr = "127.0.0.1";
  worker.master_port = 1;  // nobody connects to it
  worker.run_id = "simulated";
  return worker;
}

/// It tells of another rank's failure.
bool is_consequence(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    return error.code() == ErrorCode::kPeerFailed;
  } catch (...) {
    return false;
  }
}

/// What the first one threw. A rank's world ends before its exception is noted here, and others may
/// have noted by then that it has gone: a consequence gives way to a cause.
class FirstFailure {
 public:
  void note(int rank, std::exception_ptr exception) {
    const std::lock_guard lock(mutex_);
    if (rank_ && (!is_consequence(exception_) || is_consequence(exception))) return;
    rank_ = rank;
    exception_ = std::move(exception);
  }

  void rethrow_if_any(int ranks) const {
    if (!rank_) return;
    try {
      std::rethrow_exception(exception_);
    } catch (const Error& error) {
      // The new error is of the thread that called simulate(), at its line.
      const std::string place = base::place_in(error);
      const std::string ranks_line = place.empty() ? "" : "that rank was at " + place;
      const bool has_both = !error.why().empty() && !place.empty();
      throw Error(error.code(), fmt::format("rank {} of {}: {}", *rank_, ranks, error.summary()),
                  error.why() + (has_both ? "; " : "") + ranks_line, error.remedy());
    }
  }

 private:
  std::mutex mutex_;
  std::optional<int> rank_;
  std::exception_ptr exception_;
};

void check(int ranks, const std::function<void()>& program, int ranks_per_node) {
  if (ranks >= 1 && ranks_per_node >= 0 && program) return;
  throw Error(ErrorCode::kInvalidArgument,
              program ? fmt::format("simulate was called with {} ranks, {} of them on each node",
                                    ranks, ranks_per_node)
                      : "simulate was called without a program",
              "", "simulate(64, [] { ... })");
}

}  // namespace

void simulate(int ranks, const std::function<void()>& program, SimulateOptions options) {
  check(ranks, program, options.ranks_per_node);
  const int ranks_per_node = options.ranks_per_node == 0 ? ranks : options.ranks_per_node;
  SimulatedWorlds worlds(ranks);
  base::Environment environment = base::Environment::current();
  rendezvous::forget_job_page(environment);
  FirstFailure failure;
  const auto run = [&](int rank) {
    base::Environment own = environment;
    rendezvous::write_worker_env(worker_env(rank, ranks, ranks_per_node), own);
    SimulatedPlace place(worlds, std::move(own));
    try {
      program();
      worlds.end(rank, place.joined());
    } catch (...) {
      failure.note(rank, std::current_exception());
      worlds.fail(rank);
      dist::drop_world();
    }
  };
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    try {
      threads.emplace_back(run, rank);
    } catch (const std::system_error& error) {
      failure.note(rank, std::make_exception_ptr(base::system_error(
                             "start its thread", error.code().value(), "simulate fewer ranks")));
      worlds.fail(rank);
      break;
    }
  }
  threads.clear();
  failure.rethrow_if_any(ranks);
}

}  // namespace dtrun::runtime
