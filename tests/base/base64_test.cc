#include "dtrun/base/base64.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace dtrun::base {
namespace {

TEST(Base64Test, BytesComeBackAndWhatIsNoBase64IsSeen) {
  std::string bytes;
  for (int length = 0; length < 300; ++length) {
    EXPECT_EQ(from_base64(to_base64(bytes)), bytes);
    bytes += static_cast<char>(length * 7);
  }
  EXPECT_EQ(to_base64("fo"), "Zm8=");
  for (const char* wrong : {"Zm8", "Zm8*", "====", "Zm=8"})
    EXPECT_EQ(from_base64(wrong), std::nullopt);
}

}  // namespace
}  // namespace dtrun::base
