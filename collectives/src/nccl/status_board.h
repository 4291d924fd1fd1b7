// StatusBoard: what the ranks of a group tell one another through the store, for messages: who
// waits where, who failed and why. NCCL carries none of that. A rank writes rarely: once a call has
// taken long, or once it has called nothing for long. Thread-safe as the store is.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/collectives/fingerprint.h"
#include "dtrun/rendezvous/store.h"

namespace dtrun::collectives::nccl {

/// Of a rank: the call that it is in, or the last one that it has done.
struct Status {
  enum class Progress : char { waits, done };
  Progress progress = Progress::waits;
  Fingerprint fingerprint;
};

class StatusBoard {
 public:
  /// @param key what stands before all of its keys
  StatusBoard(std::shared_ptr<rendezvous::Store> store, std::string key, int rank,
              std::vector<int> global_ranks);

  void publish(const Status& status);
  std::optional<Status> read(int rank);
  /// "ranks 0, 2 wait in the same call; rank 1 has done all_reduce #3 ... and calls nothing".
  std::string describe_others(const Fingerprint& mine);

  /// What the others throw: that this rank has failed with the error, or the error itself.
  enum class Wording { of_a_peer, as_it_stands };
  /// The group's first failure stays.
  void publish_failure(const base::Error& error, Wording wording);
  /// As this rank throws it: it names the rank that failed.
  std::optional<base::Error> read_failure(const std::string& group);

 private:
  std::string status_key(int rank) const;

  const std::shared_ptr<rendezvous::Store> store_;
  const std::string key_;
  const int rank_;
  const std::vector<int> global_ranks_;
};

}  // namespace dtrun::collectives::nccl
