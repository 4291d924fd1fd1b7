#include "output/log_folder.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <filesystem>

#include "dtrun/base/check.h"
#include "dtrun/base/error.h"
#include "output/notice.h"
#include "output/private_folder.h"

namespace dtrun::launcher {
namespace {

using base::Error;
using base::ErrorCode;
using base::UniqueFd;

constexpr mode_t kFolderMode = 0700, kFileMode = 0600;

Error cannot_make(const std::string& path, int error_number) {
  return base::system_error(fmt::format("make the folder {}", path), error_number,
                            "name another folder with --log_dir");
}

UniqueFd open_folder(int parent, const std::string& name, const std::string& path) {
  UniqueFd folder(::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder) throw cannot_make(path, errno);
  return folder;
}

UniqueFd make_file(const UniqueFd& folder, const std::string& name, const std::string& path) {
  UniqueFd file(::openat(folder.get(), name.c_str(),
                         O_RDWR | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kFileMode));
  if (!file)
    throw base::system_error(fmt::format("make the file {}/{}", path, name),
                             "name another folder with --log_dir");
  return file;
}

uid_t owner_of(const UniqueFd& folder) {
  struct stat status {};
  return ::fstat(folder.get(), &status) == 0 ? status.st_uid : ~uid_t{0};
}

void check_log_dir(const std::string& path) {
  struct stat status {};
  if (path.empty() || ::stat(path.c_str(), &status) != 0 || S_ISDIR(status.st_mode)) return;
  throw Error(ErrorCode::kUsage, fmt::format("--log_dir={} is no folder", path), "",
              "name a folder, which need not be there yet, or /dev/null for no files at all");
}

void check_trace_file(const std::string& path) {
  struct stat status {};
  if (path.empty() ||
      (path.back() != '/' && (::stat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode))))
    return;
  throw Error(ErrorCode::kUsage, fmt::format("--trace={} is a folder", path), "",
              "name a file in it, such as trace.json");
}

std::string absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path whole =
      path.empty() ? std::filesystem::path() : std::filesystem::absolute(path, error);
  return error ? path : whole.string();
}

// As torchrun names it, where no --rdzv_id is given.
std::string name_of_job(const LaunchPlan& plan) {
  return plan.options.run_id.empty() ? "none" : file_name_of(plan.options.run_id);
}

// Small files that the job can do without are no reason not to begin.
void tell_of_unusable_tmpdir() {
  const TemporaryFolder folder = temporary_folder();
  if (folder.unusable.empty()) return;
  print_line(NoticeLevel::kWarning,
             fmt::format("nothing can be written to TMPDIR={} ({}): the ranks' error files lie in "
                         "{}",
                         folder.unusable, folder.why_unusable, folder.path));
}

}  // namespace

std::string file_name_of(const std::string& run_id) {
  constexpr std::size_t kLongest = 64;
  std::string name = run_id.substr(0, kLongest);
  for (char& letter : name) {
    const bool plain =
        std::isalnum(static_cast<unsigned char>(letter)) != 0 && (letter & 0x80) == 0;
    if (!plain && letter != '.' && letter != '_' && letter != '-') letter = '_';
  }
  if (!name.empty() && name[0] == '.') name[0] = '_';
  return name;
}

UniqueFd AttemptFolder::make_stream_file(int local_rank, Stream stream) const {
  DT_CHECK(folder_.valid());
  const std::string path = fmt::format("{}/{}", path_, local_rank);
  const UniqueFd folder = open_folder(folder_.get(), std::to_string(local_rank), path);
  return make_file(folder, fmt::format("{}.log", name_of(stream)), path);
}

UniqueFd AttemptFolder::make_filtered_file(Stream stream) const {
  DT_CHECK(folder_.valid());
  return make_file(folder_, fmt::format("filtered_{}.log", name_of(stream)), path_);
}

LogFolder LogFolder::choose(const LaunchPlan& plan) {
  const std::string unique = private_folder_name();
  LogFolder result;
  const OutputOptions& options = plan.options.output;
  result.local_ranks_ = plan.local_ranks;
  result.flights_wanted_ = options.flight_folder != "none";
  if (result.flights_wanted_) result.flight_root_ = absolute(options.flight_folder);
  check_trace_file(options.trace_file);
  if (!options.trace_file.empty()) result.trace_ = absolute(options.trace_file);
  result.has_nodes_ = plan.options.rounds.max_nodes > 1;
  if (options.files_disabled()) return result;
  check_log_dir(options.log_dir);
  result.kept_ = options.keeps_folder();
  result.root_is_temporary_ = options.log_dir.empty();
  // Ranks may change their folder before they need it. A deleted one leaves the path as it is.
  if (result.root_is_temporary_) {
    tell_of_unusable_tmpdir();
    result.root_ = (result.kept_ ? temporary_folder().path : places_of_private_folders().front()) +
                   "/" + unique;
  } else {
    result.root_ = options.log_dir;
  }
  result.root_ = absolute(result.root_);
  result.folder_ = result.kept_ ? fmt::format("{}/{}{}", result.root_, name_of_job(plan),
                                              unique.substr(unique.find('_')))
                                : result.root_;
  return result;
}

AttemptFolder LogFolder::make(int round) const {
  if (!kept_) return {};
  if (root_is_temporary_) {
    make_own_folder(root_);
  } else {
    std::error_code error;
    std::filesystem::create_directories(root_, error);
    if (error) throw cannot_make(root_, error.value());
  }
  if (::mkdir(folder_.c_str(), kFolderMode) != 0 && errno != EEXIST)
    throw cannot_make(folder_, errno);
  const UniqueFd run = open_folder(AT_FDCWD, folder_, folder_);
  const std::string name = fmt::format("attempt_{}", round);
  const std::string path = fmt::format("{}/{}", folder_, name);
  // A folder that is there is an error here: no round writes into another's files.
  if (::mkdirat(run.get(), name.c_str(), kFolderMode) != 0) throw cannot_make(path, errno);
  UniqueFd attempt = open_folder(run.get(), name, path);
  // A file system may map our user to another; whatever we make there is somebody's, and so must
  // the folder be.
  if (owner_of(run) != owner_of(attempt)) throw cannot_make(path, EPERM);
  for (int i = 0; i < local_ranks_; ++i)
    if (::mkdirat(attempt.get(), std::to_string(i).c_str(), kFolderMode) != 0)
      throw cannot_make(fmt::format("{}/{}", path, i), errno);
  return {std::move(attempt), path};
}

std::string LogFolder::file_of(int round, int local_rank) const {
  if (folder_.empty()) return "";
  return kept_ ? fmt::format("{}/attempt_{}/{}/error.json", folder_, round, local_rank)
               : fmt::format("{}/{}_{}.json", folder_, round, local_rank);
}

std::string LogFolder::flight_file(int round, int node) const {
  if (!flights_wanted_) return "";
  if (!flight_root_.empty())
    return fmt::format("{}/attempt_{}_node_{}.json", flight_root_, round, node);
  return kept_ ? fmt::format("{}/attempt_{}/flight_node_{}.json", folder_, round, node) : "";
}

std::string LogFolder::trace_file(int round, int node) const {
  if (trace_.empty()) return "";
  std::string name = trace_.stem().string();
  if (round > 0) name += fmt::format(".round{}", round);
  if (has_nodes_) name += fmt::format(".node{}", node);
  const std::string end = trace_.extension().string();
  return (trace_.parent_path() / (name + (end.empty() ? ".json" : end))).string();
}

UniqueFd LogFolder::make_private() const {
  return kept_ || folder_.empty() ? UniqueFd() : make_private_folder(folder_);
}

void LogFolder::remove() const {
  if (!kept_ && !folder_.empty()) remove_private_folder(folder_);
}

}  // namespace dtrun::launcher
