// LauncherJob: the real dtrun binary run by a test, with a folder for temporary files that is its
// own, so that what is left there can be seen.
#pragma once

#include <string>
#include <vector>

#include "support/command.h"

namespace dtrun::launcher {

class LauncherJob {
 public:
  LauncherJob();
  ~LauncherJob();
  LauncherJob(const LauncherJob&) = delete;
  LauncherJob& operator=(const LauncherJob&) = delete;

  /// The options of the run; the environment is as of a shell that has set nothing of ours.
  testing_support::CommandOptions& options() { return options_; }
  testing_support::CommandResult run(std::vector<std::string> arguments) const;
  /// In the background.
  testing_support::Command start(std::vector<std::string> arguments) const;
  /// Names of what lies in the folder for temporary files.
  std::vector<std::string> left_behind() const;
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
  testing_support::CommandOptions options_;
};

/// Of `dtrun ARGUMENTS`, with a folder of its own.
testing_support::CommandResult run_dtrun(std::vector<std::string> arguments);

}  // namespace dtrun::launcher
