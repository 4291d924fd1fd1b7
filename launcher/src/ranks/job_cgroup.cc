#include "ranks/job_cgroup.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string_view>

#include "dtrun/base/child_process.h"
#include "dtrun/base/error.h"

namespace dtrun::launcher {
namespace {

using base::Deadline;
using base::Error;
using base::ErrorCode;
using base::UniqueFd;

constexpr std::string_view kPrefix = "dtrun.";

[[noreturn]] void refuse(const std::string& why, const std::string& remedy) {
  throw Error(ErrorCode::kUnavailable, "no cgroup for the job", why, remedy);
}

std::string new_name() {
  std::uint32_t unique = 0;
  if (::getrandom(&unique, sizeof unique, 0) != sizeof unique)
    throw base::system_error("get random bytes");
  return fmt::format("{}{}.{:08x}", kPrefix, ::getpid(), unique);
}

std::string read_at(int folder, const char* name) {
  const UniqueFd fd(::openat(folder, name, O_RDONLY | O_CLOEXEC));
  char text[4096];
  const ssize_t n = fd ? ::read(fd.get(), text, sizeof text) : -1;
  return n > 0 ? std::string(text, static_cast<std::size_t>(n)) : "";
}

// A cgroup that is gone has no process.
void kill_all(const UniqueFd& kill_file) {
  while (::write(kill_file.get(), "1", 1) < 0 && errno == EINTR) {
  }
}

// Children first; whatever is still in use stays.
void remove_tree_below(const std::string& folder) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (!entry.is_directory(ignored)) continue;
    remove_tree_below(entry.path());
    ::rmdir(entry.path().c_str());
  }
}

// Until the last process has left, or the deadline. Keeper and guard may both wait here. The kernel
// tells of a cgroup file's changes at most every 10 ms, and drops what it has not told yet when the
// folder is removed: whoever removes it first can leave the other in poll(), however long. Hence
// the look every 20 ms; the file of a removed folder cannot be read.
void wait_until_empty(int folder, Deadline deadline) {
  constexpr auto kLook = std::chrono::milliseconds(20);
  const UniqueFd events(::openat(folder, "cgroup.events", O_RDONLY | O_CLOEXEC));
  char text[256];
  while (events && !deadline.expired()) {
    const ssize_t n = ::pread(events.get(), text, sizeof text, 0);
    if (n <= 0 || std::string_view(text, static_cast<std::size_t>(n)).find("populated 0") !=
                      std::string_view::npos)
      return;
    pollfd changed{events.get(), POLLPRI, 0};
    ::poll(&changed, 1, deadline.earlier(Deadline::after(kLook)).poll_timeout_ms());
  }
}

// As new_name() makes them. `dtrun.slice` is somebody else's.
bool is_name_of_job(std::string_view name) {
  const auto consists_of = [](std::string_view text, std::string_view letters) {
    return !text.empty() && text.find_first_not_of(letters) == std::string_view::npos;
  };
  if (!name.starts_with(kPrefix)) return false;
  name.remove_prefix(kPrefix.size());
  const auto dot = name.find('.');
  return dot != std::string_view::npos && consists_of(name.substr(0, dot), "0123456789") &&
         name.size() - dot - 1 == 8 && consists_of(name.substr(dot + 1), "0123456789abcdef");
}

// Removes the cgroups of dtruns that are dead. A living dtrun holds a lock, which is visible across
// pid namespaces. A cgroup with processes in it stays, and they are left alone.
void remove_abandoned(const std::string& parent) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(parent, ignored)) {
    const std::string path = entry.path();
    if (!is_name_of_job(entry.path().filename().native())) continue;
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd || ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) continue;
    remove_tree_below(path);
    ::rmdir(path.c_str());
  }
}

// Makes a folder and locks it. In between another dtrun may take it for abandoned and remove it.
// Returns a closed descriptor if there is no folder then, and errno if none can be made.
UniqueFd make_locked(const std::string& folder) {
  if (::mkdir(folder.c_str(), 0755) != 0) return {};
  UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::flock(fd.get(), LOCK_SH | LOCK_NB) != 0 || ::access(folder.c_str(), F_OK) != 0)
    fd.reset();
  return fd;
}

}  // namespace

JobCgroup JobCgroup::make(const CgroupPlace& place) {
  if (place.folder.empty()) refuse(place.why_not, "mount it, or --containment=auto");
  const char* const remedy =
      "have the cgroup delegated (systemd-run --user --scope -p "
      "Delegate=yes), or --containment=auto";
  // What moving a process into a cgroup below demands.
  const std::string members = place.folder + "/cgroup.procs";
  if (::access(members.c_str(), W_OK) != 0)
    refuse(fmt::format("{} cannot be written ({})", members, strerrordesc_np(errno)), remedy);
  remove_abandoned(place.folder);
  std::string folder;
  UniqueFd fd;
  for (int tries = 0; tries < 3 && !fd; ++tries) {
    folder = fmt::format("{}/{}", place.folder, new_name());
    fd = make_locked(folder);
  }
  if (!fd) refuse(fmt::format("{} cannot be made ({})", folder, strerrordesc_np(errno)), remedy);
  UniqueFd kill_fd(::openat(fd.get(), "cgroup.kill", O_WRONLY | O_CLOEXEC));
  const std::string type = read_at(fd.get(), "cgroup.type");
  if (kill_fd && type == "domain\n") return {folder, std::move(fd), std::move(kill_fd)};
  ::rmdir(folder.c_str());
  if (!kill_fd) refuse("this kernel has no cgroup.kill", "it came with Linux 5.14");
  refuse(fmt::format("{} is threaded", place.folder), "start dtrun in another cgroup");
}

bool JobCgroup::admits_births() const {
  return base::ChildProcess::can_be_born_into(fd_.get());
}

UniqueFd JobCgroup::first_round() const {
  UniqueFd fd(::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0));
  if (!fd) throw base::system_error("duplicate a descriptor", "raise the limit of open files");
  return fd;
}

UniqueFd JobCgroup::make_round() const {
  remove_rounds();
  const std::string name = new_name();
  if (::mkdirat(fd_.get(), name.c_str(), 0755) != 0)
    throw base::system_error(fmt::format("make the cgroup {}/{}", folder_, name));
  UniqueFd fd(::openat(fd_.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) throw base::system_error(fmt::format("open the cgroup {}/{}", folder_, name));
  return fd;
}

void JobCgroup::remove_rounds() const {
  remove_tree_below(folder_);
}

void JobCgroup::kill() const {
  kill_all(kill_fd_);
}

void remove_job_cgroup(const std::string& folder, Deadline deadline) {
  if (::rmdir(folder.c_str()) == 0 || errno != EBUSY) return;
  const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  kill_all(UniqueFd(::openat(fd.get(), "cgroup.kill", O_WRONLY | O_CLOEXEC)));
  wait_until_empty(fd.get(), deadline);
  remove_tree_below(folder);
  ::rmdir(folder.c_str());
}

}  // namespace dtrun::launcher
