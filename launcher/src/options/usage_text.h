// UsageText: the texts of --help, the manual page and docs/options.md besides the options.
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
/// Exit codes and their meanings (docs/errors.md).
std::span<const UsageExample> exit_codes();
/// Rules for all options, one paragraph each.
std::span<const std::string_view> usage_notes();

}  // namespace dtrun::launcher
