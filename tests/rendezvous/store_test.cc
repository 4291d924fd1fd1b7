// What every Store promises, on a HashStore and on a PrefixStore over one. tcp_store_test.cc runs
// the same promises over sockets.
#include "rendezvous/store_promises.h"

#include "dtrun/rendezvous/hash_store.h"
#include "dtrun/rendezvous/prefix_store.h"

namespace dtrun::rendezvous {
namespace {

std::shared_ptr<Store> hash_store() {
  return make_hash_store();
}
std::shared_ptr<Store> prefixed_hash_store() {
  return make_prefix_store("outer", make_prefix_store("inner", make_hash_store()));
}

INSTANTIATE_TEST_SUITE_P(Local, StorePromises,
                         testing::Values(StoreFactory{"Hash", hash_store},
                                         StoreFactory{"PrefixOverHash", prefixed_hash_store}),
                         name_of);

TEST(PrefixStoreTest, KeysArePrefixedAndTheWholeStoreIsCounted) {
  const auto inner = make_hash_store();
  const auto store = make_prefix_store("p", inner);
  inner->set("other", "1");
  store->set("k", "v");
  EXPECT_EQ(inner->try_get("p/k"), "v");
  EXPECT_EQ(store->num_keys(), 2);
  EXPECT_EQ(store->list_keys(), std::vector<std::string>{"k"});
}

TEST(PrefixStoreTest, ItShowsItsStoreAndSharesItsTimeout) {
  const auto inner = make_hash_store();
  const auto store = make_prefix_store("p", inner);
  EXPECT_EQ(store->underlying_store(), inner);
  EXPECT_EQ(inner->underlying_store(), nullptr);
  store->set_timeout(std::chrono::seconds(7));
  EXPECT_EQ(inner->timeout(), std::chrono::seconds(7));
  store->queue_push("q", "1");
  EXPECT_EQ(inner->queue_pop("p/q"), "1");
}

}  // namespace
}  // namespace dtrun::rendezvous
