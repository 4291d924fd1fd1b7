#include "text/json_string.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include "dtrun/base/utf8.h"

namespace dtrun::launcher {
namespace {

constexpr std::uint64_t kOnes = 0x0101'0101'0101'0101, kHighs = 0x8080'8080'8080'8080;

// In bytes below 0x80, the high bit of each that is zero. A borrow reaches only bytes above the
// first zero, and the first is all that is asked for.
constexpr std::uint64_t zeros(std::uint64_t word) {
  return (word - kOnes) & ~word;
}

// The high bit is set in the first byte that is not printable ASCII, or is a quote or a backslash;
// what stands above that byte means nothing.
constexpr std::uint64_t special_bytes(std::uint64_t word) {
  const std::uint64_t low = (word - kOnes * 0x20) & ~word;
  return (word | low | zeros(word ^ (kOnes * '"')) | zeros(word ^ (kOnes * '\\')) |
          zeros(word ^ (kOnes * 0x7f))) &
         kHighs;
}

bool is_plain(char byte) {
  const auto value = static_cast<unsigned char>(byte);
  return value >= 0x20 && value < 0x7f && byte != '"' && byte != '\\';
}

std::size_t plain_length(std::string_view text) {
  std::size_t at = 0;
  if constexpr (std::endian::native == std::endian::little) {
    for (std::uint64_t word; at + sizeof word <= text.size(); at += sizeof word) {
      std::memcpy(&word, text.data() + at, sizeof word);
      if (const std::uint64_t special = special_bytes(word); special != 0)
        return at + static_cast<std::size_t>(std::countr_zero(special)) / 8;
    }
  }
  while (at < text.size() && is_plain(text[at])) ++at;
  return at;
}

void append_escape(std::string& to, char byte) {
  constexpr const char* kDigits = "0123456789abcdef";
  const auto value = static_cast<unsigned char>(byte);
  if (byte == '"' || byte == '\\') {
    to += '\\';
    to += byte;
  } else if (byte == '\t') {
    to += "\\t";
  } else if (byte == '\n') {
    to += "\\n";
  } else if (byte == '\r') {
    to += "\\r";
  } else {
    to += "\\u00";
    to += kDigits[value >> 4];
    to += kDigits[value & 15];
  }
}

}  // namespace

bool append_json_string(std::string& to, std::string_view text) {
  const std::size_t before = to.size();
  while (!text.empty()) {
    std::size_t run = plain_length(text);
    // Letters that are not ASCII come in words, and stay as they are.
    while (run < text.size() && (text[run] & 0x80) != 0) {
      const std::size_t length = base::utf8_length(text, run);
      if (length == 0) {
        to.resize(before);
        return false;
      }
      run += length;
    }
    to.append(text.data(), run);
    text.remove_prefix(run);
    if (text.empty() || is_plain(text[0]) || (text[0] & 0x80) != 0) continue;
    append_escape(to, text[0]);
    text.remove_prefix(1);
  }
  return true;
}

}  // namespace dtrun::launcher
