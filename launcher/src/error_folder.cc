#include "error_folder.h"

#include <fmt/core.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>

#include "dtrun/base/env.h"
#include "dtrun/base/error.h"

namespace dtrun::launcher {
namespace {

// Of the round before.
bool is_own_folder(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
         status.st_uid == ::geteuid();
}

}  // namespace

ErrorFolder ErrorFolder::choose(const LaunchPlan& plan) {
  std::uint64_t unique = 0;
  if (::getrandom(&unique, sizeof unique, 0) != sizeof unique)
    throw base::system_error("get random bytes");
  ErrorFolder result;
  result.kept_ = !plan.options.log_dir.empty();
  result.local_ranks_ = plan.local_ranks;
  std::string temporary = base::get_env("TMPDIR").value_or("");
  if (temporary.empty()) temporary = P_tmpdir;
  result.folder_ = result.kept_
                       ? fmt::format("{}/{}_{:016x}", plan.options.log_dir, plan.run_id, unique)
                       : fmt::format("{}/dtrun_{:016x}", temporary, unique);
  // Ranks may change their folder before they need it. A deleted one leaves the path as it is.
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(result.folder_, error);
  if (!error) result.folder_ = whole.string();
  return result;
}

void ErrorFolder::make(int round) const {
  if (!kept_) {
    if (::mkdir(folder_.c_str(), 0700) != 0 && !(errno == EEXIST && is_own_folder(folder_)))
      throw base::system_error(fmt::format("make the folder {}", folder_),
                               "set TMPDIR to a folder that can be written to, or use --log_dir");
    return;
  }
  std::error_code error;
  for (int i = 0; i < local_ranks_ && !error; ++i)
    std::filesystem::create_directories(fmt::format("{}/attempt_{}/{}", folder_, round, i), error);
  if (error)
    throw base::system_error(fmt::format("make the folder {}", folder_), error.value(),
                             "name another folder with --log_dir");
}

std::string ErrorFolder::file_of(int round, int local_rank) const {
  return kept_ ? fmt::format("{}/attempt_{}/{}/error.json", folder_, round, local_rank)
               : fmt::format("{}/{}_{}.json", folder_, round, local_rank);
}

void ErrorFolder::remove() const {
  if (kept_ || ::rmdir(folder_.c_str()) == 0) return;
  std::error_code ignored;  // what cannot be removed now cannot be removed by anybody else either
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace dtrun::launcher
