// HashStore: a Store inside one process, for ranks that are threads. Copies share nothing: pass a
// shared_ptr or reference to the one store.
#pragma once

#include <memory>

#include "dtrun/rendezvous/store.h"

namespace dtrun::rendezvous {
std::shared_ptr<Store> make_hash_store();
}
