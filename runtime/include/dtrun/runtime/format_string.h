// FormatString: a constant format that the compiler has compared with its arguments: as many as
// there are {}, each with a format that its type takes. The syntax is {fmt}'s and std::format's,
// without widths that are arguments themselves and without locales.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include "dtrun/runtime/format_argument.h"

namespace dtrun::runtime {

// The compiler names one of these where a format is wrong; they are never called.
void more_placeholders_than_arguments();
void more_arguments_than_placeholders();
void a_brace_without_its_partner_write_two_for_a_brace_in_the_text();
void numbered_and_unnumbered_placeholders_mixed();
void the_format_of_a_placeholder_is_not_understood();
void the_format_of_a_placeholder_does_not_fit_its_argument();

/// What a format may ask of an argument.
enum class FormatKind : std::uint8_t {
  floating,
  signed_integer,
  unsigned_integer,
  boolean,
  character,
  pointer,
  text
};

template <typename T>
consteval FormatKind format_kind() {
  using Formatted = FormattedType<T>;
  if (std::same_as<Formatted, double>) return FormatKind::floating;
  if (std::same_as<Formatted, std::int64_t>) return FormatKind::signed_integer;
  if (std::same_as<Formatted, std::uint64_t>) return FormatKind::unsigned_integer;
  if (std::same_as<Formatted, bool>) return FormatKind::boolean;
  if (std::same_as<Formatted, char>) return FormatKind::character;
  if (std::same_as<Formatted, const void*>) return FormatKind::pointer;
  return FormatKind::text;
}

/// What stands behind the colon: [[fill]align][sign][#][0][width][.precision][type].
class FormatSpec {
 public:
  constexpr explicit FormatSpec(std::string_view spec) : rest_(spec) {
    take_alignment();
    signed_only_ = take_any("+- ");
    number_only_ = take_any("#");
    number_only_ = take_any("0") || number_only_;
    take_digits();
    precise_ = take_any(".");
    if (precise_ && !take_digits()) the_format_of_a_placeholder_is_not_understood();
    if (!rest_.empty()) {
      type_ = rest_[0];
      rest_.remove_prefix(1);
    }
    if (!rest_.empty()) the_format_of_a_placeholder_is_not_understood();
  }

  constexpr bool fits(FormatKind kind) const {
    const bool integer = kind == FormatKind::signed_integer || kind == FormatKind::unsigned_integer;
    const bool floating = kind == FormatKind::floating;
    if (signed_only_ && kind != FormatKind::signed_integer && !floating) return false;
    if (number_only_ && !integer && !floating) return false;
    if (precise_ && !floating && kind != FormatKind::text) return false;
    return type_ == '\0' || types_of(kind).find(type_) != std::string_view::npos;
  }

 private:
  static constexpr std::string_view types_of(FormatKind kind) {
    switch (kind) {
      case FormatKind::floating:
        return "aAeEfFgG";
      case FormatKind::signed_integer:
      case FormatKind::unsigned_integer:
        return "bBdoxX";
      case FormatKind::boolean:
        return "s";
      case FormatKind::character:
        return "c";
      case FormatKind::pointer:
        return "p";
      case FormatKind::text:
        return "s";
    }
    return "";
  }
  static constexpr bool is_alignment(char c) { return c == '<' || c == '>' || c == '^'; }
  constexpr void take_alignment() {
    // The fill is one character, of several bytes where it is not ASCII.
    std::size_t fill = 1;
    while (fill < rest_.size() && (static_cast<unsigned char>(rest_[fill]) & 0xc0) == 0x80) ++fill;
    if (fill < rest_.size() && is_alignment(rest_[fill])) {
      rest_.remove_prefix(fill + 1);
    } else if (!rest_.empty() && is_alignment(rest_[0])) {
      rest_.remove_prefix(1);
    }
  }
  constexpr bool take_any(std::string_view of) {
    if (rest_.empty() || of.find(rest_[0]) == std::string_view::npos) return false;
    rest_.remove_prefix(1);
    return true;
  }
  constexpr bool take_digits() {
    std::size_t count = 0;
    while (take_any("0123456789")) ++count;
    if (count > 6) the_format_of_a_placeholder_is_not_understood();
    return count > 0;
  }

  std::string_view rest_;
  bool signed_only_ = false;
  bool number_only_ = false;
  bool precise_ = false;
  char type_ = '\0';
};

/// Compares a format with the kinds of its arguments.
template <std::size_t kCount>
class FormatCheck {
 public:
  constexpr FormatCheck(std::string_view format, const std::array<FormatKind, kCount>& kinds)
      : rest_(format), kinds_(kinds) {}

  constexpr void run() {
    while (!rest_.empty()) {
      const char brace = take();
      if (brace != '{' && brace != '}') continue;
      if (!rest_.empty() && rest_[0] == brace) {
        take();
      } else if (brace == '{') {
        take_placeholder();
      } else {
        a_brace_without_its_partner_write_two_for_a_brace_in_the_text();
      }
    }
    for (const bool used : used_)
      if (!used) more_arguments_than_placeholders();
  }

 private:
  constexpr char take() {
    const char first = rest_[0];
    rest_.remove_prefix(1);
    return first;
  }
  constexpr void take_placeholder() {
    const std::size_t end = rest_.find_first_of("{}");
    if (end == std::string_view::npos || rest_[end] == '{')
      a_brace_without_its_partner_write_two_for_a_brace_in_the_text();
    const std::string_view inside = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    const std::size_t colon = inside.find(':');
    const std::size_t index = index_of(inside.substr(0, colon));
    if (index >= kCount) more_placeholders_than_arguments();
    used_[index] = true;
    if (colon != std::string_view::npos &&
        !FormatSpec(inside.substr(colon + 1)).fits(kinds_[index]))
      the_format_of_a_placeholder_does_not_fit_its_argument();
  }
  constexpr std::size_t index_of(std::string_view number) {
    (number.empty() ? unnumbered_ : numbered_) = true;
    if (numbered_ && unnumbered_) numbered_and_unnumbered_placeholders_mixed();
    if (number.empty()) return next_++;
    std::size_t index = 0;
    for (const char digit : number) {
      if (digit < '0' || digit > '9' || index > 999)
        the_format_of_a_placeholder_is_not_understood();
      index = index * 10 + static_cast<std::size_t>(digit - '0');
    }
    return index;
  }

  std::string_view rest_;
  const std::array<FormatKind, kCount>& kinds_;
  std::array<bool, kCount> used_{};
  std::size_t next_ = 0;
  bool numbered_ = false;
  bool unnumbered_ = false;
};

template <typename... Args>
class FormatString {
 public:
  template <std::convertible_to<std::string_view> Text>
  consteval FormatString(const Text& text)  // NOLINT: constants convert
      : text_(text) {
    const std::array<FormatKind, sizeof...(Args)> kinds = {format_kind<Args>()...};
    FormatCheck<sizeof...(Args)>(text_, kinds).run();
  }
  constexpr std::string_view text() const { return text_; }

 private:
  std::string_view text_;
};

}  // namespace dtrun::runtime
