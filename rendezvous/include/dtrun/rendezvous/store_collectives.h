// StoreCollectives: a barrier and an all_gather of small values over any Store, for processes that
// have only a store: before there are process groups, and beside them. Every rank makes an object
// of the same name and the same calls in the same order; a generation counter keeps the calls
// apart, so one object serves any number of them. A name is for one group: a later group of the
// same name in the same store would find the keys of the first.
//
// A call costs a rank a constant number of requests and leaves a constant number of its keys in the
// store; all_gather moves every value to every rank. Not thread-safe. After an error the object
// throws that error again: the other ranks may be one call ahead.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dtrun/base/deadline.h"
#include "dtrun/base/error.h"
#include "dtrun/rendezvous/store.h"

namespace dtrun::rendezvous {

class StoreCollectives {
 public:
  /// @param name a corner of the store; it shows in the errors
  /// @throws Error kInvalidArgument where the rank is not in the world
  StoreCollectives(std::shared_ptr<Store> store, std::string name, int rank, int world);

  /// Returns when all ranks have come. @throws Error kTimeout naming the ranks that have not, and
  /// for how long; and what the store throws
  void barrier(base::Deadline deadline);
  /// The values of all ranks, by rank. @throws as barrier()
  std::vector<std::string> all_gather(std::string_view value, base::Deadline deadline);

 private:
  template <typename Action>
  auto guarded(Action action);
  std::string key_of(std::string_view kind, int rank) const;
  void leave_behind(std::vector<std::string> keys, base::Deadline deadline);
  std::vector<int> absent(std::string_view kind, base::Deadline deadline);
  base::Error nobody_came(std::string_view kind, base::Deadline::Duration waited);

  std::shared_ptr<Store> store_;
  std::string name_;
  int rank_;
  int world_;
  std::int64_t generation_ = 0;
  std::vector<std::string> old_keys_;  ///< of this rank's last call
  std::optional<base::Error> failed_;
};

}  // namespace dtrun::rendezvous
