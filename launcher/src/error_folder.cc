#include "error_folder.h"

#include <fmt/core.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>

#include "dtrun/base/env.h"
#include "dtrun/base/error.h"

namespace dtrun::launcher {

ErrorFolder ErrorFolder::create(const LaunchPlan& plan) {
  ErrorFolder result;
  result.kept_ = !plan.options.log_dir.empty();
  result.local_ranks_ = plan.local_ranks;
  std::string pattern;
  if (result.kept_) {
    std::error_code error;
    std::filesystem::create_directories(plan.options.log_dir, error);
    if (error)
      throw base::system_error(fmt::format("make the folder {}", plan.options.log_dir),
                               error.value(), "name another folder with --log_dir");
    pattern = fmt::format("{}/{}_XXXXXX", plan.options.log_dir, plan.run_id);
  } else {
    pattern = base::get_env("TMPDIR").value_or(P_tmpdir) + "/dtrun_XXXXXX";
  }
  if (::mkdtemp(pattern.data()) == nullptr)
    throw base::system_error(fmt::format("make the folder {}", pattern),
                             "set TMPDIR to a folder that can be written to, or use --log_dir");
  result.folder_ = pattern;
  if (result.kept_)
    for (int i = 0; i < plan.local_ranks; ++i)
      std::filesystem::create_directories(fmt::format("{}/attempt_0/{}", result.folder_, i));
  return result;
}

std::string ErrorFolder::file_of(int local_rank) const {
  return kept_ ? fmt::format("{}/attempt_0/{}/error.json", folder_, local_rank)
               : fmt::format("{}/{}.json", folder_, local_rank);
}

void ErrorFolder::remove() const {
  if (kept_ || ::rmdir(folder_.c_str()) == 0) return;
  std::error_code ignored;  // what cannot be removed now cannot be removed by anybody else either
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace dtrun::launcher
