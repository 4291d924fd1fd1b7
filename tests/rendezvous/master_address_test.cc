#include "dtrun/rendezvous/master_address.h"

#include <gtest/gtest.h>

namespace dtrun::rendezvous {
namespace {

TEST(MasterAddressTest, ItIsWhatTheUserGaveUnlessThatIsTheLoopbackHere) {
  EXPECT_EQ(master_address("node2", "10.0.0.2", {"10.0.0.2"}), "node2");
  EXPECT_EQ(master_address("node2", "0.0.0.0", {"127.0.0.1", "10.0.0.2"}), "10.0.0.2");
  EXPECT_EQ(master_address("node2", "127.0.1.1", {"10.0.0.2"}), "10.0.0.2");
  EXPECT_EQ(master_address("localhost", "127.0.0.1", {"127.0.0.1"}), "localhost");
  EXPECT_EQ(master_address("node2", "::", {}), "node2");
}

TEST(MasterAddressTest, LoopbackIsAllOfItsNetwork) {
  for (const char* address : {"127.0.0.1", "127.0.1.1", "::1"}) EXPECT_TRUE(is_loopback(address));
  for (const char* address : {"10.0.0.1", "fe80::1", "::"}) EXPECT_FALSE(is_loopback(address));
}

}  // namespace
}  // namespace dtrun::rendezvous
