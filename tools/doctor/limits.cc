#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "doctor/examinations.h"
#include "doctor/text_files.h"
#include "output/private_folder.h"

namespace dtrun::doctor {
namespace {

constexpr double kMiB = 1 << 20;

std::string limit_text(rlim_t limit, bool is_bytes = false) {
  if (limit == RLIM_INFINITY) return "unlimited";
  return is_bytes ? bytes_text(static_cast<double>(limit)) : fmt::format("{}", limit);
}

rlimit limit_of(__rlimit_resource resource) {
  rlimit limit{};
  ::getrlimit(resource, &limit);
  return limit;
}

Finding open_files() {
  const rlimit limit = limit_of(RLIMIT_NOFILE);
  Finding finding{
      "open files", Verdict::good,
      fmt::format("{}, at most {}", limit_text(limit.rlim_cur), limit_text(limit.rlim_max))};
  // dtrun raises its own soft limit to the hard one, so only the hard one counts.
  if (limit.rlim_max >= 4096) return finding;
  finding.verdict = limit.rlim_max < 256 ? Verdict::bad : Verdict::warning;
  finding.meaning =
      "dtrun takes some for each rank of this node, and the store one for each rank of the job";
  finding.remedy =
      "ulimit -n 65536, LimitNOFILE= of the service, or docker run --ulimit nofile=65536";
  return finding;
}

Finding processes() {
  const rlimit limit = limit_of(RLIMIT_NPROC);
  Finding finding{"processes and threads", Verdict::good, limit_text(limit.rlim_cur)};
  // The kernel does not hold root to this limit.
  if (limit.rlim_cur >= 4096 || ::geteuid() == 0) return finding;
  finding.verdict = Verdict::warning;
  finding.meaning =
      "all programs of this user count; each rank has a thread for each of its CPUs and some more";
  finding.remedy = "ulimit -u 65536";
  return finding;
}

/// An adapter whose device programs of this container may open.
bool has_rdma() {
  std::error_code none;
  for (std::filesystem::directory_iterator entry("/dev/infiniband", none);
       !none && entry != std::filesystem::directory_iterator(); entry.increment(none))
    if (entry->path().filename().string().starts_with("uverbs")) return true;
  return false;
}

Finding locked_memory() {
  const rlimit limit = limit_of(RLIMIT_MEMLOCK);
  Finding finding{"locked memory", Verdict::good, limit_text(limit.rlim_cur, true)};
  const bool is_little =
      limit.rlim_cur != RLIM_INFINITY && static_cast<double>(limit.rlim_cur) < 64 * kMiB;
  if (!has_rdma()) {
    finding.meaning = "RDMA would need it, and there is no such adapter here";
  } else if (is_little && ::geteuid() != 0) {
    finding.verdict = Verdict::warning;
    finding.meaning = "NCCL and MPI cannot register memory with the RDMA adapter";
    finding.remedy = "ulimit -l unlimited, also for the Slurm daemon (LimitMEMLOCK=infinity)";
  }
  return finding;
}

// dtrun's own collectives take memory that no file system limits.
Finding shared_memory() {
  Finding finding{"shared memory", Verdict::good, ""};
  finding.meaning =
      "NCCL, Open MPI and PyTorch's loaders use it; of dtrun only small error files lie there";
  finding.remedy =
      "docker run --shm-size=1g, mount -o remount,size=50% /dev/shm, or remove what lies there";
  struct statvfs disk {};
  if (::statvfs("/dev/shm", &disk) != 0 || ::access("/dev/shm", R_OK | W_OK | X_OK) != 0) {
    finding.verdict = Verdict::warning;
    finding.found = "/dev/shm cannot be used";
    finding.remedy = "mount -t tmpfs -o mode=1777 tmpfs /dev/shm";
    return finding;
  }
  const double all = static_cast<double>(disk.f_blocks) * static_cast<double>(disk.f_frsize);
  const double free = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
  finding.found = fmt::format("{} free of {} in /dev/shm", bytes_text(free), bytes_text(all));
  if (free < 256 * kMiB) {
    finding.verdict = Verdict::warning;
    return finding;
  }
  finding.meaning.clear();
  finding.remedy.clear();
  return finding;
}

Finding temporary_files() {
  const launcher::TemporaryFolder temporary = launcher::temporary_folder();
  const bool has_all = launcher::places_of_private_folders().front() == temporary.path;
  const std::string what =
      has_all ? "the ranks' error files and logs lie there" : "the ranks' logs lie there";
  Finding finding{"temporary files", Verdict::good, ""};
  struct statvfs disk {};
  if (::statvfs(temporary.path.c_str(), &disk) != 0 ||
      ::access(temporary.path.c_str(), R_OK | W_OK | X_OK) != 0) {
    finding.verdict = has_all ? Verdict::bad : Verdict::warning;
    finding.found = temporary.path + " cannot be written to";
    finding.meaning = what;
    finding.remedy = "TMPDIR=FOLDER";
    return finding;
  }
  const double free = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
  finding.found = fmt::format("{} free in {}", bytes_text(free), temporary.path);
  if (!temporary.unusable.empty()) {
    finding.verdict = Verdict::warning;
    finding.found += ", for TMPDIR=" + temporary.unusable + " cannot be written to";
    finding.meaning = what + "; other programs may insist on TMPDIR";
    finding.remedy = "make that folder, or unset TMPDIR";
  } else if (free < 64 * kMiB) {
    finding.verdict = Verdict::warning;
    finding.meaning = what;
    finding.remedy = "free space, or TMPDIR=FOLDER";
  }
  return finding;
}

Finding cgroups() {
  Finding finding{"cgroups", Verdict::good, "version 2"};
  if (!std::filesystem::exists("/sys/fs/cgroup/cgroup.controllers")) {
    finding.found = "no version 2 at /sys/fs/cgroup";
    finding.meaning = "dtrun finds all processes of a rank by its guard instead, as surely";
  } else if (::access("/sys/fs/cgroup/cgroup.procs", W_OK) != 0 && ::geteuid() != 0) {
    finding.meaning =
        "whether this user may make some is known when a job starts; else the guard finds all "
        "processes of a rank";
  }
  return finding;
}

/// The narrowest one among this process' cgroups of version 2 and those above; 0: none.
double memory_limit() {
  std::ifstream own("/proc/self/cgroup");
  std::string path;
  for (std::string line; std::getline(own, line);)
    if (line.starts_with("0::")) path = line.substr(3);
  double least = 0;
  for (std::filesystem::path at = path; !path.empty(); at = at.parent_path()) {
    const auto limit =
        first_line("/sys/fs/cgroup" + (at == "/" ? "" : at.string()) + "/memory.max");
    const double bytes = limit && *limit != "max" ? std::atof(limit->c_str()) : 0;
    if (bytes > 0 && (least == 0 || bytes < least)) least = bytes;
    if (at == "/" || !at.has_parent_path()) break;
  }
  return least;
}

Finding memory() {
  Finding finding{"memory", Verdict::good, ""};
  const double all =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  finding.found = bytes_text(all);
  const double limit = memory_limit();
  if (limit > 0 && limit < all) {
    finding.found += fmt::format(", this cgroup at most {}", bytes_text(limit));
    finding.meaning = "above it the kernel kills a rank (exit code -9)";
  }
  return finding;
}

Finding core_files() {
  const rlimit limit = limit_of(RLIMIT_CORE);
  const std::string pattern = first_line("/proc/sys/kernel/core_pattern").value_or("");
  Finding finding{"core files", Verdict::good,
                  fmt::format("{} to {}", limit_text(limit.rlim_cur, true), pattern)};
  if (limit.rlim_cur == 0 && !pattern.starts_with('|'))
    finding.meaning =
        "a rank that crashes leaves none; ulimit -c unlimited before dtrun changes that";
  return finding;
}

}  // namespace

Findings examine_limits() {
  return {open_files(),      processes(), locked_memory(), shared_memory(),
          temporary_files(), memory(),    cgroups(),       core_files()};
}

}  // namespace dtrun::doctor
