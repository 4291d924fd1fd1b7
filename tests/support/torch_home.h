// The PyTorch that tests/lab/torch-up has made: of the version in DTRUN_TORCH_VERSION, or the
// newest.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "support/command.h"

namespace dtrun::testing_support {

/// The folder is empty, and the reason is given, where PyTorch cannot be had.
struct TorchHome {
  std::string folder;
  std::string reason;
  std::string version;  ///< "2.15"
  std::string python() const { return folder + "/bin/python"; }
};

inline TorchHome find_torch() {
  // Within what CTest gives the program; the rest is the tests'.
  CommandOptions options;
  options.limit = std::chrono::seconds(280);
  const char* const wanted = std::getenv("DTRUN_TORCH_VERSION");
  const CommandResult made = run_command(
      {DTRUN_SOURCE_DIR "/tests/lab/torch-up", "", wanted == nullptr ? "" : wanted}, options);
  if (made.exit_code != 0) return {"", made.describe(), ""};
  TorchHome home{made.out.substr(0, made.out.find('\n')), "", ""};
  std::string version;
  std::getline(std::ifstream(home.folder + "/torch-version"), version);
  home.version = version.substr(0, version.find('.', version.find('.') + 1));
  return home;
}

/// Asks once per test program.
inline const TorchHome& torch_home() {
  static const TorchHome kHome = find_torch();
  return kHome;
}

}  // namespace dtrun::testing_support

#define REQUIRE_TORCH(home)                                                                 \
  const ::dtrun::testing_support::TorchHome& home = ::dtrun::testing_support::torch_home(); \
  if (home.folder.empty()) GTEST_SKIP() << "no PyTorch here: " << home.reason
