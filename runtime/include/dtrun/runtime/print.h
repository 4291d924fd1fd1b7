// print: one line to standard output, written at once, so that the lines of several ranks or
// threads never mix.
#pragma once

#include <initializer_list>
#include <string_view>
#include <type_traits>

#include "dtrun/runtime/format_argument.h"
#include "dtrun/runtime/format_string.h"

namespace dtrun::runtime {

/// Adds the line's end. Waits until all of it is written. @throws Error kSystem (a closed pipe, a
/// full disk)
void print_line(std::string_view line);
/// @param format one that FormatString has checked
void print_formatted(std::string_view format, std::initializer_list<FormatArgument> arguments);

/// print("[Rank {}] {}", rank, tensor): {fmt}'s syntax in a constant, which the compiler checks.
/// Numbers, text, all that has a to_string() (tensors, groups, meshes), and vectors of these.
template <typename... Args>
void print(FormatString<std::type_identity_t<Args>...> format, const Args&... args) {
  print_formatted(format.text(), {format_argument<Args>(args)...});
}

/// print(tensor), print(outputs), print(text): one value by itself. A literal is a format.
template <typename T>
requires(!std::is_array_v<T>) void print(const T& value) {
  print_line(default_text(format_argument<T>(value)));
}

}  // namespace dtrun::runtime
