// print: one line to standard output, written at once, so that the lines of several ranks or
// threads never mix.
#pragma once

#include <fmt/core.h>

#include <string_view>

namespace dtrun::runtime {

/// Adds the line's end. Waits until all of it is written. @throws Error kSystem (a closed pipe, a
/// full disk)
void print_line(std::string_view line);

template <typename T>
decltype(auto) printable(const T& value) {
  if constexpr (requires { value.to_string(); }) {
    return value.to_string();
  } else {
    return (value);
  }
}

/// print("[Rank {}] {}", rank, tensor): {fmt}'s syntax; tensors and all that has a to_string() may
/// be printed.
template <typename... Args>
void print(fmt::string_view format, const Args&... args) {
  print_line(fmt::vformat(format, fmt::make_format_args(printable(args)...)));
}

}  // namespace dtrun::runtime
