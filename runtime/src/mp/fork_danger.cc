#include "fork_danger.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace dtrun::mp {
namespace {

using base::Error;
using base::ErrorCode;

constexpr const char* kRemedy =
    "use the start method spawn or forkserver, or start the processes before";

// The thread sanitizer has a thread of its own, which knows about fork().
#ifdef __SANITIZE_THREAD__
constexpr std::size_t kSanitizerThreads = 1;
#else
constexpr std::size_t kSanitizerThreads = 0;
#endif

std::string first_line(const std::filesystem::path& path) {
  std::ifstream stream(path);
  std::string line;
  std::getline(stream, line);
  return line;
}

// PF_EXITING, in the ninth field of stat: such a thread holds nothing any more, and pthread_join
// returns a little before the kernel has forgotten it.
bool is_ending(const std::string& stat) {
  constexpr unsigned kExiting = 0x4;
  const auto after_name = stat.rfind(')');
  if (after_name == std::string::npos) return true;
  std::istringstream fields(stat.substr(after_name + 1));
  std::string field;
  for (int number = 3; number <= 8; ++number) fields >> field;
  unsigned flags = 0;
  fields >> flags;
  return (flags & kExiting) != 0;
}

}  // namespace

std::optional<Error> fork_danger(int live_workers, const std::vector<std::string>& open_files,
                                 const std::vector<ThreadFact>& other_threads) {
  if (live_workers > 0)
    return Error(ErrorCode::kUsage, "fork after init: this process has joined a job",
                 "a copy would have the connections of its parent, and none of its threads",
                 "use the start method spawn or forkserver, or fork before "
                 "dist::init_process_group()");
  const auto device = std::find_if(open_files.begin(), open_files.end(), [](const auto& path) {
    return path.starts_with("/dev/nvidia");
  });
  if (device != open_files.end())
    return Error(ErrorCode::kUsage, "fork after CUDA was initialized in this process",
                 fmt::format("{} is open, and CUDA does not work in a copy of a process that has "
                             "used it",
                             *device),
                 kRemedy);
  if (other_threads.size() <= kSanitizerThreads) return std::nullopt;
  std::string names;
  for (const ThreadFact& thread : other_threads)
    names += fmt::format("{}{} '{}'", names.empty() ? "" : ", ", thread.tid, thread.name);
  return Error(
      ErrorCode::kUsage,
      fmt::format("fork with {} other thread{} in this process", other_threads.size(),
                  other_threads.size() == 1 ? "" : "s"),
      fmt::format("they do not exist in a copy, and what they hold stays locked there: {}", names),
      kRemedy);
}

std::vector<std::string> open_files() {
  std::vector<std::string> result;
  std::error_code ignored;  // a descriptor may be closed meanwhile
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored))
    result.push_back(std::filesystem::read_symlink(entry.path(), ignored).string());
  return result;
}

std::vector<ThreadFact> other_threads() {
  std::vector<ThreadFact> result;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    const pid_t tid = std::stoi(entry.path().filename().string());
    if (tid == ::gettid() || is_ending(first_line(entry.path() / "stat"))) continue;
    result.push_back({tid, first_line(entry.path() / "comm")});
  }
  return result;
}

}  // namespace dtrun::mp
