#include "dtrun/dtensor/checkpoint/file_calls.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace dtrun::dtensor::dcp {
namespace {

int filled(const struct stat& found, FileStatus& status) {
  status.kind = S_ISREG(found.st_mode)   ? FileKind::regular
                : S_ISDIR(found.st_mode) ? FileKind::folder
                                         : FileKind::other;
  status.bytes = static_cast<std::uint64_t>(found.st_size);
  return 0;
}

int renamed(const std::string& from, const std::string& to, unsigned flags) {
  return static_cast<int>(
      ::syscall(SYS_renameat2, AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags));
}

}  // namespace

int SystemFileCalls::create(const std::string& path) {
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
}

int SystemFileCalls::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  // The kernel reads farther ahead: hashing and copying go on beside the disk.
  if (fd >= 0) ::posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
  return fd;
}

int SystemFileCalls::open_folder(const std::string& path) {
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY);
}

ssize_t SystemFileCalls::write(int fd, const void* bytes, std::size_t count) {
  return ::write(fd, bytes, count);
}

ssize_t SystemFileCalls::read_at(int fd, void* bytes, std::size_t count, std::uint64_t offset) {
  return ::pread(fd, bytes, count, static_cast<off_t>(offset));
}

// mincore() changes nothing. A read that may not wait (RWF_NOWAIT) would make the kernel read
// ahead: the next who looks would find the byte. Of files of others it says that all of them are
// cached.
bool SystemFileCalls::is_cached(int fd, std::uint64_t offset) {
  constexpr std::uint64_t kPage = 4096;
  void* const page =
      ::mmap(nullptr, kPage, PROT_READ, MAP_SHARED, fd, static_cast<off_t>(offset / kPage * kPage));
  if (page == MAP_FAILED) return true;
  unsigned char is_there = 1;
  const int result = ::mincore(page, kPage, &is_there);
  ::munmap(page, kPage);
  return result != 0 || (is_there & 1) != 0;
}

int SystemFileCalls::direct(int fd, bool on) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0) return -1;
  return ::fcntl(fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT);
}

int SystemFileCalls::status(int fd, FileStatus& status) {
  struct stat found {};
  return ::fstat(fd, &found) == 0 ? filled(found, status) : -1;
}

int SystemFileCalls::status(const std::string& path, FileStatus& status) {
  struct stat found {};
  return ::lstat(path.c_str(), &found) == 0 ? filled(found, status) : -1;
}

int SystemFileCalls::sync(int fd) {
  return ::fsync(fd);
}

// Not UniqueFd's: what close() says of a file that was written to is looked at.
int SystemFileCalls::close(int fd) {
  return ::close(fd);
}

int SystemFileCalls::lock(int fd) {
  return ::flock(fd, LOCK_EX | LOCK_NB);
}

int SystemFileCalls::make_folder(const std::string& path) {
  return ::mkdir(path.c_str(), 0755);
}

// A file system that cannot refuse an old name (NFS): one process renames, and the old name was
// looked for just before.
int SystemFileCalls::rename(const std::string& from, const std::string& to) {
  const int result = renamed(from, to, RENAME_NOREPLACE);
  if (result == 0 || (errno != EINVAL && errno != ENOSYS)) return result;
  FileStatus old;
  if (status(to, old) == 0) {
    errno = EEXIST;
    return -1;
  }
  return ::rename(from.c_str(), to.c_str());
}

int SystemFileCalls::exchange(const std::string& a, const std::string& b) {
  return renamed(a, b, RENAME_EXCHANGE);
}

int SystemFileCalls::remove(const std::string& path) {
  return ::unlink(path.c_str());
}

int SystemFileCalls::remove_folder(const std::string& path) {
  return ::rmdir(path.c_str());
}

int SystemFileCalls::list(const std::string& path, std::vector<std::string>& names) {
  DIR* const folder = ::opendir(path.c_str());
  if (folder == nullptr) return -1;
  errno = 0;
  while (const dirent* const entry = ::readdir(folder)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
    errno = 0;
  }
  const int error = errno;
  ::closedir(folder);
  errno = error;
  return error == 0 ? 0 : -1;
}

}  // namespace dtrun::dtensor::dcp
