// print: one line to standard output, written at once, so that the lines of several ranks or
// threads never mix.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace dtrun::runtime {

/// Adds the line's end. Waits until all of it is written. @throws Error kSystem (a closed pipe, a
/// full disk)
void print_line(std::string_view line);

/// What stands for a value in a line: its to_string() where it has one; a vector as Python prints a
/// list, "[tensor([0.]), tensor([1.])]"; else the value itself.
template <typename T>
decltype(auto) printable(const T& value) {
  if constexpr (requires { value.to_string(); }) {
    return value.to_string();
  } else {
    return (value);
  }
}
template <typename T>
std::string printable(const std::vector<T>& list) {
  std::string text;
  for (const T& item : list) text += fmt::format("{}{}", text.empty() ? "" : ", ", printable(item));
  return "[" + text + "]";
}

/// print("[Rank {}] {}", rank, tensor): {fmt}'s syntax. Tensors, groups, all that has a
/// to_string(), and vectors of what can be printed.
template <typename... Args>
void print(fmt::string_view format, const Args&... args) {
  print_line(fmt::vformat(format, fmt::make_format_args(printable(args)...)));
}

/// print(tensor), print(outputs): one value by itself.
template <typename T>
std::enable_if_t<!std::is_convertible_v<const T&, fmt::string_view>> print(const T& value) {
  print("{}", value);
}

}  // namespace dtrun::runtime
