// Utf8: which bytes are characters of UTF-8, and what stands for those that are none. Pure.
#pragma once

#include <string>
#include <string_view>

namespace dtrun::base {

/// Of the character that begins at a place of the text; 0: none does.
std::size_t utf8_length(std::string_view text, std::size_t at);

/// U+FFFD stands for each byte that belongs to no character.
std::string as_utf8(std::string_view text);

/// Fit for a terminal: "\\x1b" and its like stand for control characters that are no line break.
std::string without_controls(std::string_view text);

}  // namespace dtrun::base
