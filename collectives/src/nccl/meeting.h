// Meeting: how the ranks of a communicator to be find one another through the store: every rank
// says which GPU it brings, the first one then makes NCCL's id, or says why not. Asked again and
// again; never blocks. One thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dtrun/rendezvous/store.h"
#include "nccl/nccl_api.h"

namespace dtrun::collectives::nccl {

struct MeetingPlace {
  std::shared_ptr<rendezvous::Store> store;
  std::string key;                ///< what stands before all of its keys
  int rank = 0;                   ///< in the communicator
  std::vector<int> global_ranks;  ///< of its members, for messages
  std::string gpu;                ///< equal for equal GPUs of one machine; empty: not compared
  std::string gpu_name;           ///< for messages: "cuda:0 of n0"
};

class Meeting {
 public:
  Meeting(NcclApi& api, MeetingPlace place);

  /// The id, once all have come. @throws Error kUnavailable where two ranks bring the same GPU
  std::optional<UniqueId> ask();
  /// Global ranks that have not come.
  std::vector<int> missing() const;

 private:
  std::string member_key(std::size_t rank) const;
  /// What the first rank tells all.
  std::string decide();
  UniqueId read(const std::string& answer) const;

  NcclApi& api_;
  const MeetingPlace place_;
  bool announced_ = false;
};

}  // namespace dtrun::collectives::nccl
