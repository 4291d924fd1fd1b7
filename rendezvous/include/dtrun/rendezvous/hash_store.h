// HashStore: a Store inside one process, for ranks that are threads. Copies share nothing: pass a
// shared_ptr or reference to the one store.
#pragma once

#include <memory>

#include "dtrun/base/error.h"
#include "dtrun/rendezvous/store.h"

namespace dtrun::rendezvous {

class HashStore : public Store {
 public:
  /// Every wait for a missing key, now or later, throws `why`: nobody will set it any more. The
  /// first call counts.
  virtual void end_waits(const base::Error& why) = 0;
};

std::shared_ptr<HashStore> make_hash_store();

}  // namespace dtrun::rendezvous
