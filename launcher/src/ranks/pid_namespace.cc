#include "ranks/pid_namespace.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "dtrun/base/error.h"

namespace dtrun::launcher {
namespace {

using base::UniqueFd;

[[noreturn]] void refuse(const std::string& step, int error_number) {
  throw base::Error(
      base::ErrorCode::kUnavailable, "no pid namespace for the job",
      fmt::format("cannot {} ({})", step, strerrordesc_np(error_number)),
      "run as root with CAP_SYS_ADMIN, or where users may make user namespaces "
      "(user.max_user_namespaces, kernel.unprivileged_userns_clone, "
      "kernel.apparmor_restrict_unprivileged_userns; in a container also its seccomp profile, and "
      "no file of /proc masked), or --containment=auto");
}

// The kernel takes each of these files in one write.
void write_own(const char* path, const std::string& text) {
  const UniqueFd fd(::open(path, O_WRONLY | O_CLOEXEC));
  if (!fd || ::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    refuse(fmt::format("write {} of a user namespace", path), errno);
}

// Files keep their owners: users and groups have the numbers that they have outside.
void make_user_namespace() {
  const auto user = ::geteuid();
  const auto group = ::getegid();
  if (::unshare(CLONE_NEWUSER) != 0) refuse("make a user namespace", errno);
  write_own("/proc/self/setgroups", "deny");  // the condition for a map of groups
  write_own("/proc/self/uid_map", fmt::format("{0} {0} 1", user));
  write_own("/proc/self/gid_map", fmt::format("{0} {0} 1", group));
}

}  // namespace

PidNamespace PidNamespace::make() {
  UniqueFd outer_proc(::open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!outer_proc) refuse("open /proc", errno);
  if (::unshare(CLONE_NEWPID) == 0) return {std::move(outer_proc), Right::kOwn};
  if (errno != EPERM) refuse("make a pid namespace", errno);
  make_user_namespace();
  if (::unshare(CLONE_NEWPID) != 0) refuse("make a pid namespace", errno);
  return {std::move(outer_proc), Right::kOfUserNamespace};
}

void PidNamespace::enter() const {
  if (::unshare(CLONE_NEWNS) != 0) refuse("make a mount namespace", errno);
  // Later mounts outside become visible here; mounts made here do not become visible outside.
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0)
    refuse("keep mounts to oneself", errno);
  if (::mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0)
    refuse("mount a /proc of its own", errno);
}

pid_t PidNamespace::number_outside(int pidfd) const {
  // In the outer /proc, "self" is this process by its outer number, and so is what a pidfd tells.
  const std::string path = fmt::format("self/fdinfo/{}", pidfd);
  const UniqueFd fd(::openat(outer_proc_.get(), path.c_str(), O_RDONLY | O_CLOEXEC));
  char text[1024];
  const ssize_t n = fd ? ::read(fd.get(), text, sizeof text - 1) : 0;
  if (n <= 0) return 0;
  text[n] = '\0';
  constexpr std::string_view kField = "\nPid:";
  const auto at = std::string_view(text).find(kField);
  return at == std::string_view::npos ? 0 : std::atoi(text + at + kField.size());
}

std::string PidNamespace::describe() const {
  return fmt::format(
      "pid namespace{}, which the kernel ends with its first process, the guard. Its limit: ranks "
      "see numbers of their own (the guard is 1); reports have those that ps shows outside",
      right_ == Right::kOwn ? "" : " in a user namespace (no setuid programs, no other users)");
}

}  // namespace dtrun::launcher
