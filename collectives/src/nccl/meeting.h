// Meeting: how the ranks of a communicator to be find one another through the store: every rank
// says which GPU it brings, the first one then makes NCCL's id, or says why not. The herald asks,
// again and again, without blocking anyone; what has come of it is for any thread.
#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "dtrun/rendezvous/store.h"
#include "nccl/nccl_api.h"

namespace dtrun::collectives::nccl {

struct MeetingPlace {
  std::shared_ptr<rendezvous::Store> store;
  std::string key;                ///< what stands before all of its keys
  int rank = 0;                   ///< among those who meet
  std::size_t ids = 1;            ///< how many communicators they make of it
  std::vector<int> global_ranks;  ///< of its members, for messages
  std::string gpu;                ///< equal for equal GPUs of one machine; empty: not compared
  std::string gpu_name;           ///< for messages: "cuda:0 of n0"
};

class Meeting {
 public:
  using Ids = std::vector<UniqueId>;

  Meeting(std::shared_ptr<NcclApi> api, MeetingPlace place);

  // The herald's.
  /// @return whether there is nothing to ask any more
  bool ask();
  /// Global ranks that have not come.
  std::vector<int> missing() const;

  // Anybody's.
  /// The ids, once all have come. @throws what the meeting failed with: Error kUnavailable where
  /// two ranks bring the same GPU
  std::optional<Ids> outcome() const;
  /// Nobody wants to know any more.
  void cancel();

 private:
  std::optional<Ids> look();
  std::string member_key(std::size_t rank) const;
  /// What the first rank tells all.
  std::string decide();
  Ids read(const std::string& answer) const;

  const std::shared_ptr<NcclApi> api_;
  const MeetingPlace place_;
  bool announced_ = false;

  mutable std::mutex mutex_;
  std::optional<Ids> ids_;
  std::exception_ptr failure_;
  bool cancelled_ = false;
};

}  // namespace dtrun::collectives::nccl
