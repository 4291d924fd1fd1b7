#include "jobs/local_job.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "dtrun/base/deadline.h"
#include "dtrun/base/error.h"
#include "dtrun/base/unique_fd.h"
#include "jobs/process_table.h"

namespace dtrun::jobs {

using rendezvous::HistoryEntry;
using rendezvous::JobPage;
using rendezvous::RankState;
namespace fs = std::filesystem;

namespace {

constexpr const char* kPageLink = "/memfd:dtrun-job-page";
/// Of thousands of ranks; what is larger is none, whoever has named it so.
constexpr off_t kMostPageBytes = off_t{1} << 30;

/// A page that a process holds: its own, and those that it has inherited.
struct HeldPage {
  std::string id;
  std::shared_ptr<JobPage> page;
};

/// Null: it cannot be opened, or may shrink under us.
std::shared_ptr<JobPage> opened(const fs::path& path) {
  const base::UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return nullptr;
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  struct stat status {};
  if (seals < 0 || (seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW) ||
      ::fstat(fd.get(), &status) != 0 || status.st_size > kMostPageBytes)
    return nullptr;
  try {
    return std::make_shared<JobPage>(JobPage::open(fd.get()));
  } catch (const base::Error&) {
    return nullptr;  // of another version
  }
}

std::vector<HeldPage> pages_of(pid_t pid, std::map<std::string, std::shared_ptr<JobPage>>& known) {
  std::vector<HeldPage> pages;
  std::error_code none;
  for (fs::directory_iterator entry(proc_path(pid, "fd"), none);
       !none && entry != fs::directory_iterator(); entry.increment(none)) {
    std::error_code gone;
    if (!fs::read_symlink(entry->path(), gone).string().starts_with(kPageLink)) continue;
    struct stat status {};
    if (::stat(entry->path().c_str(), &status) != 0) continue;
    const std::string id = fmt::format("{}:{}", status.st_dev, status.st_ino);
    // One of its holders may just be ending, or starting another program.
    std::shared_ptr<JobPage>& page = known[id];
    if (page == nullptr) page = opened(entry->path());
    if (page != nullptr) pages.push_back({id, page});
  }
  return pages;
}

std::string program_of(pid_t pid) {
  std::error_code gone;
  return fs::read_symlink(proc_path(pid, "exe"), gone);
}

/// Of agent, keeper and guard, which are one program, the one that was started. What is above is
/// another job's guard, whose rank this dtrun is, or another program.
pid_t started_dtrun(pid_t guard, const ProcessTable& table, const std::set<pid_t>& guards) {
  const std::string program = program_of(guard);
  pid_t first = guard;
  for (int steps = 0; steps < 2; ++steps) {
    const pid_t parent = table.parent(first);
    if (parent <= 1 || guards.contains(parent) || program_of(parent) != program) break;
    first = parent;
  }
  return first;
}

LocalRank rank_of(const JobPage& page, int local_rank, pid_t guard, const ProcessTable& table) {
  const rendezvous::RankSlot& slot = page.slot(local_rank);
  LocalRank rank{slot.global_rank.load(), local_rank};
  const pid_t number = slot.pid.load();
  if (number > 0) rank.pid = table.below_with_number(guard, number).value_or(0);
  rank.state = state_of(slot);
  if (rank.pid > 0) rank.is_stopped = state_letter(rank.pid) == 'T';
  const std::vector<HistoryEntry> history = page.history(local_rank);
  if (!history.empty()) rank.newest = history.back();
  return rank;
}

std::string variable(const std::vector<std::string>& environment, const std::string& name) {
  for (const std::string& one : environment)
    if (one.starts_with(name + "=")) return plain(one.substr(name.size() + 1));
  return "";
}

LocalJob job_of(pid_t guard, std::shared_ptr<const JobPage> held, const ProcessTable& table,
                const std::set<pid_t>& guards) {
  LocalJob job{.pid = started_dtrun(guard, table, guards), .guard = guard};
  job.page = std::move(held);
  const JobPage& page = *job.page;
  job.cause = plain(page.describe_cause());
  job.age = age_of(job.pid);
  for (const std::string& word : texts_of(proc_path(job.pid, "cmdline")))
    job.command += (job.command.empty() ? "" : " ") + plain(word);
  for (int i = 0; i < page.slot_count(); ++i) {
    job.ranks.push_back(rank_of(page, i, guard, table));
    if (!job.id.empty() || job.ranks.back().pid <= 0) continue;
    const std::vector<std::string> environment =
        texts_of(proc_path(job.ranks.back().pid, "environ"));
    job.id = variable(environment, "TORCHELASTIC_RUN_ID");
    job.node = variable(environment, "GROUP_RANK");
    job.nodes = variable(environment, "GROUP_WORLD_SIZE");
    job.world = variable(environment, "WORLD_SIZE");
    job.round = variable(environment, "TORCHELASTIC_RESTART_COUNT");
  }
  return job;
}

std::string operation_text(const HistoryEntry& entry) {
  std::string text = fmt::format("{} #{} of group '{}'", entry.operation.name,
                                 entry.operation.sequence, entry.operation.group);
  if (entry.call_site[0] != '\0') text += fmt::format(" at {}", entry.call_site);
  return plain(text);
}

/// Of CLOCK_MONOTONIC; "an unknown time" where it is not in the past.
std::string time_since(std::int64_t then_ns) {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t now_ns = std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  if (then_ns <= 0 || then_ns > now_ns) return "an unknown time";
  return base::format_duration(std::chrono::milliseconds((now_ns - then_ns) / 1'000'000));
}

/// What a rank that has joined does: its last operation tells, for the state is another moment's.
std::string activity_of(const LocalRank& rank) {
  if (!rank.newest) return "computes; it has not called a collective";
  const rendezvous::Operation& last = rank.newest->operation;
  const std::string text = operation_text(*rank.newest);
  if (last.ended_ns != 0)
    return fmt::format("computes since {} ended {} ago", text, time_since(last.ended_ns));
  const std::string in = fmt::format("in {} for {}", text, time_since(last.started_ns));
  return last.waiting_for < 0 ? in : fmt::format("{}, waits for rank {}", in, last.waiting_for);
}

}  // namespace

std::vector<LocalJob> local_jobs() {
  const ProcessTable table;
  std::map<std::string, std::shared_ptr<JobPage>> pages;
  std::map<std::string, std::set<pid_t>> holders;
  for (const pid_t pid : table.pids()) {
    for (const HeldPage& held : pages_of(pid, pages)) holders[held.id].insert(pid);
  }
  // The guard has made the page, and its children have inherited it.
  std::map<pid_t, std::string> page_of_guard;
  std::set<pid_t> guards;
  for (const auto& [id, pids] : holders) {
    const auto guard =
        std::ranges::find_if(pids, [&](pid_t pid) { return !pids.contains(table.parent(pid)); });
    if (guard == pids.end()) continue;
    page_of_guard[*guard] = id;
    guards.insert(*guard);
  }
  std::vector<LocalJob> jobs;
  for (const auto& [guard, id] : page_of_guard)
    jobs.push_back(job_of(guard, pages[id], table, guards));
  std::ranges::sort(jobs, {}, &LocalJob::pid);
  return jobs;
}

std::string describe(const LocalRank& rank) {
  std::string text;
  switch (rank.state) {
    case RankState::kNone:
      return "is not started";
    case RankState::kExited:
      return "has ended";
    case RankState::kSpawned:
      text = "runs; it has not joined the job";
      break;
    case RankState::kInit:
      text = "waits for the others in init_process_group";
      break;
    case RankState::kLeft:
      text = "has left the job";
      break;
    case RankState::kRunning:
    case RankState::kInCollective:
      text = activity_of(rank);
      break;
    default:
      text = "has written something unknown where its state should be";
  }
  return rank.is_stopped ? text + "; stopped by a signal" : text;
}

}  // namespace dtrun::jobs
