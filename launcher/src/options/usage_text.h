// UsageText: what --help, the manual page and docs/options.md say around the options.
#pragma once

#include <span>
#include <string_view>

namespace dtrun::launcher {

struct UsageExample {
  std::string_view command;
  std::string_view meaning;
};

std::string_view usage_intro();
std::span<const UsageExample> usage_examples();
/// Code, and what it means (docs/errors.md).
std::span<const UsageExample> exit_codes();
/// One paragraph each: what is true of all options.
std::span<const std::string_view> usage_notes();

}  // namespace dtrun::launcher
