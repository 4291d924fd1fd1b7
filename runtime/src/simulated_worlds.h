// SimulatedWorlds: which ranks of a simulation can still come to the next world: those that wait
// for one that cannot are told, as a launcher would tell them.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/rendezvous/hash_store.h"

namespace dtrun::runtime {

class SimulatedWorlds {
 public:
  explicit SimulatedWorlds(int ranks) : ranks_(ranks) {}

  const std::shared_ptr<rendezvous::HashStore>& store() const { return store_; }

  /// A rank comes to its `count`-th world, of so many ranks.
  void join(int count, int world_size) {
    const std::lock_guard lock(mutex_);
    // A world of fewer ranks may do without those that have ended.
    if (world_size == ranks_) most_joined_ = std::max(most_joined_, count);
    tell_of_missing();
  }

  /// A rank's program has returned; it was in so many worlds.
  void end(int rank, int joined) {
    const std::lock_guard lock(mutex_);
    if (!ended_ || joined < ended_->joined) ended_ = {rank, joined};
    tell_of_missing();
  }

  void fail(int rank) {
    store_->end_waits(base::Error(base::ErrorCode::kPeerFailed,
                                  fmt::format("rank {} of {} failed", rank, ranks_),
                                  "this rank waits in the store, where it is missing"));
  }

 private:
  struct Ended {
    int rank;
    int joined;
  };

  void tell_of_missing() {
    if (!ended_ || ended_->joined >= most_joined_) return;
    store_->end_waits(base::Error(
        base::ErrorCode::kUsage,
        fmt::format("rank {} of {} ended before it joined", ended_->rank, ranks_),
        "every rank of a simulation must come to init", "let all ranks join as many worlds"));
  }

  const int ranks_;
  const std::shared_ptr<rendezvous::HashStore> store_ = rendezvous::make_hash_store();
  std::mutex mutex_;
  int most_joined_ = 0;
  std::optional<Ended> ended_;  ///< of those that have, the one that was in the fewest worlds
};

}  // namespace dtrun::runtime
