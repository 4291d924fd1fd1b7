#include "dtrun/rendezvous/token.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "proof/hmac_sha256.h"
#include "support/thrown_error.h"

namespace dtrun::rendezvous {
namespace {

using base::ErrorCode;
using testing_support::contains;
using testing_support::error_of;

std::string text_of(const Token::Code& code) {
  return std::string(code.begin(), code.end());
}

std::string in_digits(const Token::Code& code) {
  std::string digits;
  for (const unsigned char byte : code) digits += fmt::format("{:02x}", byte);
  return digits;
}

TEST(TokenTest, ItsCodesAreHmacSha256) {
  // RFC 4231, test case 5, whose key of 20 bytes is long enough: the first 16 bytes of the code.
  const Token::Code code =
      Token(std::string(20, '\x0c'), "the test").code_of("Test With Truncation");
  const unsigned char expected[] = {0xa3, 0xb6, 0x16, 0x74, 0x73, 0x10, 0x0e, 0xe0,
                                    0x6e, 0x0c, 0x79, 0x6c, 0x29, 0x55, 0x55, 0x2b};
  EXPECT_TRUE(std::equal(std::begin(expected), std::end(expected), code.begin()));
}

TEST(TokenTest, HmacSha256AgreesWithRfc4231) {
  struct Case {
    std::string key, message;
    const char* code;
  };
  const std::string long_key(131, '\xaa');
  const Case cases[] = {
      {std::string(20, '\x0b'), "Hi There",
       "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
      {"Jefe", "what do ya want for nothing?",
       "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
      {std::string(20, '\xaa'), std::string(50, '\xdd'),
       "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
      {long_key, "Test Using Larger Than Block-Size Key - Hash Key First",
       "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
      {long_key,
       "This is a test using a larger than block-size key and a larger than block-size data. The "
       "key needs to be hashed before being used by the HMAC algorithm.",
       "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"},
  };
  for (const Case& one : cases)
    EXPECT_EQ(in_digits(hmac_sha256(one.key, one.message)), one.code) << one.message;
}

// Messages of each length below 300 bytes, keys of 16 and of 32 to 131, each code a part of the
// next key, so one wrong bit anywhere changes the last one. It is Python's hashlib that has
// computed it.
TEST(TokenTest, HmacSha256IsRightForEveryLength) {
  std::string code(16, '0');
  for (std::size_t n = 0; n < 300; ++n)
    code = text_of(hmac_sha256(code + std::string(n % 100, 'k'), std::string(n, 'm')));
  Token::Code last;
  std::ranges::copy(code, last.begin());
  EXPECT_EQ(in_digits(last), "a953840f8c2eea1df49e4ad6a33396e94ba85aa3e3d94a930d7d675eef8cf7df");
}

TEST(TokenTest, WhiteSpaceAtItsEndsIsNoneOfIt) {
  EXPECT_EQ(Token(" 0123456789abcdef\r\n", "a").code_of("m"),
            Token("0123456789abcdef", "b").code_of("m"));
}

TEST(TokenTest, ASecretThatCouldBeGuessedIsRefused) {
  for (const std::string& text : {std::string(), std::string("   \n"), std::string(15, 'x')}) {
    const auto error = error_of([&] { Token(text, "DTRUN_TOKEN"); });
    ASSERT_TRUE(error) << text;
    EXPECT_EQ(error->code(), ErrorCode::kUsage);
    EXPECT_TRUE(contains(error->what(), "the token of DTRUN_TOKEN is too short")) << error->what();
  }
  EXPECT_EQ(error_of([] { Token(std::string(5000, 'x'), "a"); })->code(), ErrorCode::kUsage);
}

TEST(TokenTest, CodesAreComparedToTheLastByte) {
  const Token::Code code = Token("0123456789abcdef", "a").code_of("m");
  std::string other = text_of(code);
  EXPECT_TRUE(same_code(code, other));
  for (char& byte : other) {
    byte ^= 1;
    EXPECT_FALSE(same_code(code, other));
    byte ^= 1;
  }
  EXPECT_FALSE(same_code(code, other.substr(1)));
  EXPECT_FALSE(same_code(code, ""));
}

TEST(TokenTest, ItIsReadFromAFile) {
  const std::string path = testing::TempDir() + "token_test." + std::to_string(::getpid());
  const auto missing = error_of([&] { Token::from_file(path, "token_file="); });
  ASSERT_TRUE(missing);
  EXPECT_EQ(missing->code(), ErrorCode::kNotFound);
  EXPECT_TRUE(contains(missing->what(), "token_file=: there is no file '" + path))
      << missing->what();
  std::ofstream(path) << "0123456789abcdef\n";
  ::chmod(path.c_str(), 0600);
  EXPECT_EQ(Token::from_file(path, "a").code_of("m"), Token("0123456789abcdef", "b").code_of("m"));
  for (const mode_t mode : {0640U, 0604U, 0602U, 0620U}) {
    ::chmod(path.c_str(), mode);
    const auto open_to_others = error_of([&] { Token::from_file(path, "token_file="); });
    ASSERT_TRUE(open_to_others) << mode;
    EXPECT_EQ(open_to_others->code(), ErrorCode::kUsage);
    EXPECT_TRUE(contains(open_to_others->what(), "others can have read this token"));
    // Written into the old file it would have the old file's mode.
    EXPECT_TRUE(contains(open_to_others->what(), "base64 > " + path + ".new)"))
        << open_to_others->what();
    EXPECT_FALSE(contains(open_to_others->what(), "0123456789abcdef"));
  }
  ::chmod(path.c_str(), 0600);
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(path.c_str(), 12345, 0), 0);
    EXPECT_TRUE(contains(error_of([&] { Token::from_file(path, "a"); })->what(), "user 12345"));
    ASSERT_EQ(::chown(path.c_str(), 0, 0), 0);
  }
  std::ofstream(path, std::ios::app) << std::string(5000, 'x');
  EXPECT_EQ(error_of([&] { Token::from_file(path, "a"); })->code(), ErrorCode::kUsage);
  std::filesystem::remove(path);
  // A folder: it can be opened, and not be read.
  std::filesystem::create_directory(path);
  ::chmod(path.c_str(), 0700);
  EXPECT_EQ(error_of([&] { Token::from_file(path, "a"); })->code(), ErrorCode::kSystem);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace dtrun::rendezvous
