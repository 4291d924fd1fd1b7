#include "output/private_folder.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
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

constexpr const char* kSharedMemory = "/dev/shm";
constexpr std::string_view kPrivatePrefix = "dtrun_";
constexpr std::size_t kPrivateDigits = 16;
// A symbolic link whose target is the machine's boot id: it has no data that a disk would write,
// and it is made when the folder is locked already.
constexpr const char* kOwner = "owner";

std::string this_boot() {
  const UniqueFd fd(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  char text[128];
  const ssize_t n = fd ? ::read(fd.get(), text, sizeof text) : -1;
  // Without the end of its line.
  return n > 1 ? std::string(text, static_cast<std::size_t>(n) - 1) : "";
}

// Of the machine on which the folder was made; empty: it is not made yet, or not by dtrun.
std::string boot_in(const UniqueFd& folder) {
  char text[128];
  const ssize_t n = ::readlinkat(folder.get(), kOwner, text, sizeof text);
  return n > 0 ? std::string(text, static_cast<std::size_t>(n)) : "";
}

UniqueFd open_folder(const std::string& path) {
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
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

bool is_memory(const char* folder) {
  struct statfs system {};
  return ::statfs(folder, &system) == 0 && system.f_type == TMPFS_MAGIC;
}

bool is_private_name(std::string_view name) {
  if (!name.starts_with(kPrivatePrefix)) return false;
  name.remove_prefix(kPrivatePrefix.size());
  return name.size() == kPrivateDigits && name.find_first_not_of("0123456789abcdef") == name.npos;
}

// Takes the folder's lock, which is visible across pid namespaces. Returns none if its maker lives
// or if that cannot be found out.
UniqueFd lock_of_dead(const std::string& path) {
  UniqueFd folder = open_folder(path);
  const std::string boot = folder ? boot_in(folder) : "";
  if (boot.empty() || boot != this_boot() || ::flock(folder.get(), LOCK_EX | LOCK_NB) != 0)
    return {};
  return folder;
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

std::vector<std::string> places_of_private_folders() {
  std::vector<std::string> places = {temporary_folder().path};
  const bool named = !base::get_env("TMPDIR").value_or("").empty();
  if (!named && is_memory(kSharedMemory) && why_not_writable(kSharedMemory) == 0)
    places.insert(places.begin(), kSharedMemory);
  return places;
}

std::string private_folder_name() {
  std::uint64_t unique = 0;
  if (::getrandom(&unique, sizeof unique, 0) != sizeof unique)
    throw base::system_error("get random bytes");
  return fmt::format("{}{:0{}x}", kPrivatePrefix, unique, kPrivateDigits);
}

void make_own_folder(const std::string& path, const char* remedy) {
  if (::mkdir(path.c_str(), 0700) != 0 && !(errno == EEXIST && is_own_folder(path)))
    throw base::system_error(fmt::format("make the folder {}", path), remedy);
}

UniqueFd make_private_folder(const std::string& path) {
  make_own_folder(path);
  UniqueFd folder = open_folder(path);
  const bool shows =
      folder && ::flock(folder.get(), LOCK_SH | LOCK_NB) == 0 &&
      (::symlinkat(this_boot().c_str(), folder.get(), kOwner) == 0 || errno == EEXIST);
  if (!shows) return {};
  return base::moved_up(std::move(folder), 32);
}

// The link is removed last: if this dtrun is killed in between, another one can go on.
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
