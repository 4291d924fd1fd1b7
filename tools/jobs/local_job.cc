#include "jobs/local_job.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "dtrun/base/deadline.h"
#include "dtrun/base/error.h"
#include "dtrun/base/unique_fd.h"
#include "dtrun/base/utf8.h"

namespace dtrun::jobs {

using rendezvous::HistoryEntry;
using rendezvous::JobPage;
using rendezvous::RankState;
namespace fs = std::filesystem;

namespace {

constexpr const char* kPageLink = "/memfd:dtrun-job-page";

std::string proc(pid_t pid, const char* name) {
  return fmt::format("/proc/{}/{}", pid, name);
}

/// Texts that end with a NUL, as the kernel has arguments and variables. Empty: the process has
/// ended, or is another user's.
std::vector<std::string> texts_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<std::string> texts;
  for (std::string text; std::getline(file, text, '\0');) texts.push_back(text);
  return texts;
}

std::string variable(const std::vector<std::string>& environment, const std::string& name) {
  for (const std::string& one : environment)
    if (one.starts_with(name + "=")) return one.substr(name.size() + 1);
  return "";
}

/// What stands behind the name in /proc/PID/stat: the state first.
std::vector<std::string> stat_of(pid_t pid) {
  std::ifstream file(proc(pid, "stat"));
  const std::string line{std::istreambuf_iterator<char>(file), {}};
  const std::size_t end = line.rfind(')');
  std::vector<std::string> fields;
  if (end == std::string::npos) return fields;
  std::istringstream rest(line.substr(end + 1));
  for (std::string field; rest >> field;) fields.push_back(field);
  return fields;
}

pid_t parent_of(pid_t pid) {
  const std::vector<std::string> fields = stat_of(pid);
  return fields.size() < 2 ? 0 : std::atoi(fields[1].c_str());
}

std::string program_of(pid_t pid) {
  std::error_code gone;
  return fs::read_symlink(proc(pid, "exe"), gone);
}

std::chrono::seconds age_of(pid_t pid) {
  constexpr std::size_t kStart = 19;  // field 22
  const std::vector<std::string> fields = stat_of(pid);
  if (fields.size() <= kStart) return {};
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  const long long start = std::atoll(fields[kStart].c_str()) / ::sysconf(_SC_CLK_TCK);
  return std::chrono::seconds(std::max<long long>(0, now.tv_sec - start));
}

/// A process' job page; null: it has none that may be opened.
std::unique_ptr<JobPage> page_of(pid_t pid) {
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(proc(pid, "fd"), none)) {
    if (!fs::read_symlink(entry.path(), none).string().starts_with(kPageLink)) continue;
    const base::UniqueFd fd(::open(entry.path().c_str(), O_RDWR | O_CLOEXEC));
    if (!fd) continue;
    try {
      return std::make_unique<JobPage>(JobPage::open(fd.get()));
    } catch (const base::Error&) {
      continue;  // of another version
    }
  }
  return nullptr;
}

/// Of agent, keeper and guard, which are one program, the one that was started.
pid_t first_of_program(pid_t guard) {
  const std::string program = program_of(guard);
  pid_t first = guard;
  while (true) {
    const pid_t parent = parent_of(first);
    if (parent <= 1 || program_of(parent) != program) return first;
    first = parent;
  }
}

LocalRank rank_of(const JobPage& page, int local_rank) {
  const rendezvous::RankSlot& slot = page.slot(local_rank);
  LocalRank rank{slot.global_rank.load(), local_rank, slot.pid.load(),
                 static_cast<RankState>(slot.state.load())};
  const std::vector<std::string> fields =
      rank.pid > 0 ? stat_of(rank.pid) : std::vector<std::string>();
  rank.is_stopped = !fields.empty() && fields[0] == "T";
  const std::vector<HistoryEntry> history = page.history(local_rank);
  if (!history.empty()) rank.newest = history.back();
  return rank;
}

LocalJob job_of(pid_t guard, const JobPage& page) {
  LocalJob job{.pid = first_of_program(guard), .cause = page.describe_cause()};
  job.age = age_of(job.pid);
  for (const std::string& word : texts_of(proc(job.pid, "cmdline")))
    job.command += (job.command.empty() ? "" : " ") + base::without_controls(word);
  for (int i = 0; i < page.slot_count(); ++i) {
    job.ranks.push_back(rank_of(page, i));
    if (!job.id.empty() || job.ranks.back().pid <= 0) continue;
    const std::vector<std::string> environment = texts_of(proc(job.ranks.back().pid, "environ"));
    job.id = variable(environment, "TORCHELASTIC_RUN_ID");
    job.node = variable(environment, "GROUP_RANK");
    job.nodes = variable(environment, "GROUP_WORLD_SIZE");
    job.world = variable(environment, "WORLD_SIZE");
  }
  return job;
}

std::string operation_text(const HistoryEntry& entry) {
  std::string text = fmt::format("{} #{} of group '{}'", entry.operation.name,
                                 entry.operation.sequence, entry.operation.group);
  if (entry.call_site[0] != '\0') text += fmt::format(" at {}", entry.call_site);
  return text;
}

std::string time_since(std::int64_t then_ns) {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t ns = std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec - then_ns;
  return base::format_duration(
      std::chrono::milliseconds(std::max<std::int64_t>(0, ns / 1'000'000)));
}

}  // namespace

std::vector<LocalJob> local_jobs() {
  std::map<pid_t, LocalJob> jobs;
  std::set<std::string> known;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", none)) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    // The guard has it; so have the ranks, by another program.
    if (pid <= 0 || fs::path(program_of(pid)).filename() != "dtrun") continue;
    const std::unique_ptr<JobPage> page = page_of(pid);
    if (page == nullptr || !known.insert(page->id()).second) continue;
    LocalJob job = job_of(pid, *page);
    jobs.emplace(job.pid, std::move(job));
  }
  std::vector<LocalJob> found;
  for (auto& [pid, job] : jobs) found.push_back(std::move(job));
  return found;
}

std::string describe(const LocalRank& rank) {
  std::string text;
  switch (rank.state) {
    case RankState::kNone:
      return "is not started";
    case RankState::kSpawned:
      text = "runs; it has not joined the job";
      break;
    case RankState::kInit:
      text = "waits for the others in init_process_group";
      break;
    case RankState::kRunning:
      text = "computes";
      if (rank.newest)
        text += fmt::format(" since {} ended {} ago", operation_text(*rank.newest),
                            time_since(rank.newest->operation.ended_ns));
      break;
    case RankState::kInCollective:
      text = "in a collective";
      if (rank.newest) {
        text = fmt::format("in {} for {}", operation_text(*rank.newest),
                           time_since(rank.newest->operation.started_ns));
        if (rank.newest->operation.waiting_for >= 0)
          text += fmt::format(", waits for rank {}", rank.newest->operation.waiting_for);
      }
      break;
    case RankState::kLeft:
      text = "has left the job";
      break;
    case RankState::kExited:
      return "has ended";
  }
  return rank.is_stopped ? text + "; stopped by a signal" : text;
}

}  // namespace dtrun::jobs
