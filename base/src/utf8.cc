#include "dtrun/base/utf8.h"

#include <fmt/core.h>

namespace dtrun::base {

// Overlong forms, surrogates and what is beyond U+10FFFF are none.
std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto byte_at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte_at(at);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || at + length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte_at(at + i) & 0xc0) != 0x80) return 0;
  const unsigned second = byte_at(at + 1);
  const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool no_character = (first == 0xed && second > 0x9f) || (first == 0xf4 && second > 0x8f);
  return overlong || no_character ? 0 : length;
}

std::string as_utf8(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    result += length == 0 ? std::string_view("\xef\xbf\xbd") : text.substr(at, length);
    at += length == 0 ? 1 : length;
  }
  return result;
}

std::string without_controls(std::string_view text) {
  std::string result;
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    const bool control = (byte < 0x20 && letter != '\n' && letter != '\t') || byte == 0x7f;
    result += control ? fmt::format("\\x{:02x}", byte) : std::string(1, letter);
  }
  return result;
}

}  // namespace dtrun::base
