#include "launcher/launcher_job.h"

#include <stdlib.h>

#include <filesystem>

namespace dtrun::launcher {

LauncherJob::LauncherJob() : folder_(std::filesystem::temp_directory_path() / "dtrun_test_XXXXXX") {
  if (::mkdtemp(folder_.data()) == nullptr) ::abort();
  options_.environment = {
      {"TMPDIR", folder_}, {"OMP_NUM_THREADS", "1"}, {"XDG_CONFIG_HOME", folder_}};
}

LauncherJob::~LauncherJob() {
  std::error_code ignored;  // the test has ended; what it left is not its claim
  std::filesystem::remove_all(folder_, ignored);
}

testing_support::CommandResult LauncherJob::run(std::vector<std::string> arguments) const {
  arguments.insert(arguments.begin(), DTRUN_BINARY);
  return testing_support::run_command(arguments, options_);
}

testing_support::Command LauncherJob::start(std::vector<std::string> arguments) const {
  arguments.insert(arguments.begin(), DTRUN_BINARY);
  return testing_support::Command(arguments, options_);
}

std::vector<std::string> LauncherJob::left_behind() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder_))
    // A process that is killed while it starts under TSan leaves a file of the sanitizer's own.
    if (const std::string name = entry.path().filename(); !name.starts_with("tsan.rodata."))
      names.push_back(name);
  return names;
}

testing_support::CommandResult run_dtrun(std::vector<std::string> arguments) {
  return LauncherJob().run(std::move(arguments));
}

}  // namespace dtrun::launcher
