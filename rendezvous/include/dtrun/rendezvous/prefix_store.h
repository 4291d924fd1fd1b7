// PrefixStore: a view of another Store in which every key is written as "prefix/key". num_keys
// counts the whole of the other store. Thread-safe as the store below it.
#pragma once

#include <memory>
#include <string>

#include "dtrun/rendezvous/store.h"

namespace dtrun::rendezvous {
std::shared_ptr<Store> make_prefix_store(std::string prefix, std::shared_ptr<Store> store);
}
