#include <gtest/gtest.h>

#include "etcd/etcd_messages.h"

namespace dtrun::rendezvous {
namespace {

TEST(EtcdKeysTest, ARangeHasWhatBeginsWithItsPrefix) {
  const EtcdKeys keys = EtcdKeys::with_prefix("job/a\xff");
  EXPECT_TRUE(keys.has("job/a\xff"));
  EXPECT_TRUE(keys.has("job/a\xff\xff/rank"));
  EXPECT_FALSE(keys.has("job/a"));
  EXPECT_FALSE(keys.has("job/b"));
  EXPECT_TRUE(EtcdKeys::one("job").has("job"));
  EXPECT_FALSE(EtcdKeys::one("job").has("job/a"));
}

// Such a range has no end, which etcd writes as a byte that is the lowest key.
TEST(EtcdKeysTest, ARangeWithoutAnEndHasAllFromItsFirstKeyOn) {
  for (const std::string& key : {std::string(1, '\0'), std::string("a"), std::string("\xff\xff")})
    EXPECT_TRUE(EtcdKeys::with_prefix("").has(key));
  const EtcdKeys last = EtcdKeys::with_prefix("\xff\xff");
  EXPECT_TRUE(last.has("\xff\xff"));
  EXPECT_TRUE(last.has("\xff\xff/rank"));
  EXPECT_FALSE(last.has("\xff"));
  EXPECT_FALSE(last.has("a"));
}

}  // namespace
}  // namespace dtrun::rendezvous
