// The PyTorch that tests/lab/torch-up has made.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "support/command.h"

namespace dtrun::testing_support {

/// The folder is empty, and the reason is given, where PyTorch cannot be had.
struct TorchHome {
  std::string folder;
  std::string reason;
  std::string python() const { return folder + "/bin/python"; }
};

/// Asks once per test program.
inline const TorchHome& torch_home() {
  static const TorchHome kHome = [] {
    CommandOptions options;
    options.limit = std::chrono::seconds(280);
    const CommandResult result = run_command({DTRUN_SOURCE_DIR "/tests/lab/torch-up"}, options);
    if (result.exit_code != 0) return TorchHome{"", result.describe()};
    return TorchHome{result.out.substr(0, result.out.find('\n')), ""};
  }();
  return kHome;
}

}  // namespace dtrun::testing_support

#define REQUIRE_TORCH(home)                                                                 \
  const ::dtrun::testing_support::TorchHome& home = ::dtrun::testing_support::torch_home(); \
  if (home.folder.empty()) GTEST_SKIP() << "no PyTorch here: " << home.reason
