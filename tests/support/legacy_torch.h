// Debian's own PyTorch, 1.13: its clients speak the store's legacy dialect
// (scripts/install-packages --legacy-torch).
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "support/command.h"

namespace dtrun::testing_support {

/// The python is empty, and the reason is given, where that PyTorch is not installed.
struct LegacyTorch {
  std::string python;
  std::string reason;
};

/// Asks once per test program.
inline const LegacyTorch& legacy_torch() {
  static const LegacyTorch kTorch = [] {
    const std::string python = "/usr/bin/python3";
    const std::string ask = "import torch.distributed as d; d.is_gloo_available() or exit(1)";
    const CommandResult result = run_command({python, "-c", ask});
    if (result.exit_code == 0) return LegacyTorch{python, ""};
    const std::size_t last = result.err.find_last_not_of('\n');
    const std::size_t line = result.err.rfind('\n', last);
    return LegacyTorch{
        "", "try: scripts/install-packages --legacy-torch; " +
                result.err.substr(line == std::string::npos ? 0 : line + 1, last - line)};
  }();
  return kTorch;
}

}  // namespace dtrun::testing_support

#define REQUIRE_LEGACY_TORCH(torch)                                                              \
  const ::dtrun::testing_support::LegacyTorch& torch = ::dtrun::testing_support::legacy_torch(); \
  if (torch.python.empty()) GTEST_SKIP() << "no PyTorch 1.13 of Debian here: " << torch.reason
