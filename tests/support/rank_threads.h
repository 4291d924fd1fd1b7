// Ranks as threads of this process: each with its own ProcessGroup over one HashStore. For breadth;
// rank_processes.h has ranks as processes, for deaths.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/collectives/process_group.h"

namespace dtrun::test {

struct RankOptions {
  std::string backend = "cpu";
  collectives::Transport transport = collectives::Transport::automatic;
  base::Deadline::Duration timeout = std::chrono::seconds(60);
  /// How many ranks share memory, one group after the other; the last one has the rest. Empty: all.
  std::vector<int> machines = {};
  collectives::SingleCopy single_copy = collectives::SingleCopy::automatic;
  int connections_per_peer = 0;
  /// A cost table; empty: none.
  std::string costs = {};
  /// The body's tensors lie in the group's shared memory.
  bool shared_memory = false;
  /// The ranks are bound to so many of the CPUs that the test may use, so that they share cores
  /// also on a large machine; 0: to none.
  int cpus = 0;
  /// Where the ranks show what they do; null: nowhere.
  std::shared_ptr<rendezvous::JobPage> job_page = nullptr;
};

/// A job page on which each rank has the slot of its number.
std::shared_ptr<rendezvous::JobPage> page_of_ranks(int size);

/// The calling thread, and those that it will start, run on the first of its CPUs only.
void bind_to_cpus(int cpus);

/// Group options of one rank.
collectives::GroupOptions group_options(std::shared_ptr<rendezvous::Store> store, int rank,
                                        int size, const RankOptions& options = {});

using RankBody = std::function<void(const collectives::ProcessGroup& group)>;

/// Runs the body on every rank of a new group. An exception of a rank fails the test, unless
/// another rank's came first.
void run_ranks(int size, const RankOptions& options, const RankBody& body);
inline void run_ranks(int size, const RankBody& body) {
  run_ranks(size, {}, body);
}

/// What each rank's body threw; nullopt where it returned.
struct Thrown {
  base::ErrorCode code;
  std::string text;
};
std::vector<std::optional<Thrown>> run_failing_ranks(int size, const RankOptions& options,
                                                     const RankBody& body);

}  // namespace dtrun::test
