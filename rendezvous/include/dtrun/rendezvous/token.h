// Token: the secret of all agents of a job, by which they recognise each other. It never travels:
// a side proves that it has it by a code (HMAC-SHA256) over the bytes that both have sent. A value.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace dtrun::rendezvous {

class Token {
 public:
  /// 128 bits: a shorter one could be guessed by trying.
  static constexpr std::size_t kLeastBytes = 16;
  static constexpr std::size_t kMostBytes = 4096;
  using Code = std::array<unsigned char, 32>;

  /// @param text the secret; white space at its ends is none of it
  /// @param origin where it comes from, for messages: "DTRUN_TOKEN"
  /// @throws Error kUsage (too short or too long)
  Token(std::string_view text, const std::string& origin);
  /// @param origin "--rdzv_conf token_file="
  /// @throws Error kNotFound, kSystem, kUsage (also where others than its owner may read or write
  /// it)
  static Token from_file(const std::string& path, const std::string& origin);

  Code code_of(std::string_view message) const;

 private:
  std::string secret_;
};

/// In a time that does not depend on where they differ.
bool same_code(const Token::Code& own, std::string_view theirs);

}  // namespace dtrun::rendezvous
