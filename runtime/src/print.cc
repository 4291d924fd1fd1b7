#include "dtrun/runtime/print.h"

#include <fmt/args.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <variant>

#include "dtrun/base/error.h"

namespace dtrun::runtime {

void print_line(std::string_view line) {
  std::string text(line);
  text += '\n';
  std::fflush(stdout);  // keeps the order with printf and std::cout
  for (std::string_view left = text; !left.empty();) {
    const ssize_t n = ::write(STDOUT_FILENO, left.data(), left.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw base::system_error("write to standard output");
    left.remove_prefix(static_cast<std::size_t>(n));
  }
}

void print_formatted(std::string_view format, std::initializer_list<FormatArgument> arguments) {
  fmt::dynamic_format_arg_store<fmt::format_context> store;
  for (const FormatArgument& argument : arguments)
    std::visit([&](const auto& value) { store.push_back(value); }, argument);
  print_line(fmt::vformat(format, store));
}

std::string default_text(const FormatArgument& argument) {
  if (const auto* text = std::get_if<std::string>(&argument)) return *text;
  return std::visit([](const auto& value) { return fmt::format("{}", value); }, argument);
}

}  // namespace dtrun::runtime
