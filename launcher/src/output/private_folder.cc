#include "output/private_folder.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "dtrun/base/env.h"
#include "dtrun/base/error.h"

namespace dtrun::launcher {
namespace {

namespace files = std::filesystem;
using base::UniqueFd;

constexpr std::string_view kPrivatePrefix = "dtrun_";
constexpr std::size_t kPrivateDigits = 16;
// The lock file holds the machine's boot id. It gets this name when it is already locked.
constexpr const char* kOwner = "owner";
constexpr const char* kOwnerToBe = "owner.new";

std::string read_whole(int fd) {
  char text[128];
  const ssize_t n = fd < 0 ? -1 : ::pread(fd, text, sizeof text, 0);
  return n > 0 ? std::string(text, static_cast<std::size_t>(n)) : "";
}

std::string this_boot() {
  const UniqueFd fd(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  return read_whole(fd.get());
}

bool is_own_folder(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
         status.st_uid == ::geteuid();
}

// 0: files can be made there.
int why_not_writable(const std::string& folder) {
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0) return errno;
  if (!S_ISDIR(status.st_mode)) return ENOTDIR;
  return ::access(folder.c_str(), W_OK | X_OK) == 0 ? 0 : errno;
}

bool is_private_name(std::string_view name) {
  if (!name.starts_with(kPrivatePrefix)) return false;
  name.remove_prefix(kPrivatePrefix.size());
  return name.size() == kPrivateDigits && name.find_first_not_of("0123456789abcdef") == name.npos;
}

// Takes the folder's lock, which is visible across pid namespaces. Returns none if its maker lives
// or if that cannot be found out.
UniqueFd lock_of_dead(const std::string& path) {
  const UniqueFd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  UniqueFd owner(
      folder ? ::openat(folder.get(), kOwner, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC) : -1);
  const std::string boot = owner ? read_whole(owner.get()) : "";
  if (boot.empty() || boot != this_boot() || ::flock(owner.get(), LOCK_EX | LOCK_NB) != 0)
    return {};
  return owner;
}

// As far as it can be read.
std::vector<files::path> entries_of(const std::string& folder) {
  std::vector<files::path> entries;
  std::error_code error;
  for (files::directory_iterator at(folder, error); !error && at != files::directory_iterator();
       at.increment(error))
    entries.push_back(at->path());
  return entries;
}

}  // namespace

TemporaryFolder temporary_folder() {
  const std::string named = base::get_env("TMPDIR").value_or("");
  if (named.empty()) return {P_tmpdir, "", ""};
  if (const int error = why_not_writable(named); error != 0)
    return {P_tmpdir, named, strerrordesc_np(error)};
  return {named, "", ""};
}

std::string private_folder_name() {
  std::uint64_t unique = 0;
  if (::getrandom(&unique, sizeof unique, 0) != sizeof unique)
    throw base::system_error("get random bytes");
  return fmt::format("{}{:0{}x}", kPrivatePrefix, unique, kPrivateDigits);
}

void make_own_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && !(errno == EEXIST && is_own_folder(path)))
    throw base::system_error(fmt::format("make the folder {}", path),
                             "set TMPDIR to a folder that can be written to, or use --log_dir");
}

UniqueFd make_private_folder(const std::string& path) {
  make_own_folder(path);
  const std::string to_be = path + "/" + kOwnerToBe;
  UniqueFd owner(::open(to_be.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  const std::string boot = this_boot();
  const bool shows =
      owner && ::flock(owner.get(), LOCK_SH | LOCK_NB) == 0 &&
      ::write(owner.get(), boot.data(), boot.size()) == static_cast<ssize_t>(boot.size()) &&
      ::rename(to_be.c_str(), (path + "/" + kOwner).c_str()) == 0;
  if (!shows) {
    ::unlink(to_be.c_str());
    return {};
  }
  return base::moved_up(std::move(owner), 32);
}

// The lock file is removed last: if this dtrun is killed in between, another one can go on.
void remove_private_folder(const std::string& path) {
  std::error_code ignored;
  for (const files::path& entry : entries_of(path))
    if (entry.filename() != kOwner) files::remove_all(entry, ignored);
  ::unlink((path + "/" + kOwner).c_str());
  ::rmdir(path.c_str());
}

void remove_abandoned_folders(const std::string& parent) {
  for (const files::path& entry : entries_of(parent)) {
    if (!is_private_name(entry.filename().native()) || !is_own_folder(entry)) continue;
    if (const UniqueFd lock = lock_of_dead(entry)) remove_private_folder(entry);
  }
}

}  // namespace dtrun::launcher
