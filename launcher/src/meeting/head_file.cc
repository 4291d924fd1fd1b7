#include "meeting/head_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "dtrun/base/error.h"
#include "dtrun/base/socket.h"

namespace dtrun::launcher {
namespace {

using base::Deadline;
using base::Error;
using base::ErrorCode;
using base::UniqueFd;

Error file_error(const std::string& action, const std::string& path, int error_number) {
  return base::system_error(fmt::format("{} '{}'", action, path), error_number,
                            "--rdzv_endpoint must be a path in a folder that exists on all nodes, "
                            "is the same there, and may be written to");
}

// The lock belongs to the open file: the kernel releases it however the process ends.
bool try_lock(int fd, const std::string& path) {
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return false;
    if (errno == EINTR) continue;
    throw base::system_error(fmt::format("lock '{}'", path), errno,
                             "the file system there has no locks: name a path on another, or use "
                             "--rdzv_endpoint=HOST:PORT "
                             "without store_type=file");
  }
  return true;
}

Error not_ours(const std::string& path, const std::string& why) {
  return Error(ErrorCode::kUsage, fmt::format("'{}' is not a file through which a job meets", path),
               fmt::format("{}, and is left as it is", why),
               "name another path in --rdzv_endpoint, one that does not exist yet");
}

// Only a regular file is opened: a claim replaces the file and removes it later. Returns an invalid
// descriptor if there is no file.
UniqueFd open_if_there(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return {};
    throw file_error("look at", path, errno);
  }
  if (!S_ISREG(status.st_mode)) throw not_ours(path, "it is no regular file");
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd && errno != ENOENT) throw file_error("open", path, errno);
  if (fd && (::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)))
    throw not_ours(path, "it is no regular file");
  return fd;
}

bool still_at(int fd, const std::string& path) {
  struct stat open_file {
  }, named{};
  return ::fstat(fd, &open_file) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino;
}

std::string read_record(int fd, const std::string& path) {
  std::string text(kMostHeadRecordBytes + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t n = ::pread(fd, text.data() + size, text.size() - size, static_cast<off_t>(size));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw file_error("read", path, errno);
    if (n == 0) break;
    size += static_cast<std::size_t>(n);
  }
  text.resize(size);
  return text;
}

void write_record(int fd, const std::string& path, const std::string& text) {
  std::size_t written = 0;
  while (written < text.size()) {
    const ssize_t n = ::write(fd, text.data() + written, text.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw file_error("write", path, errno);
    written += static_cast<std::size_t>(n);
  }
  // Some file systems report a full disk only here.
  if (::fsync(fd) != 0) throw file_error("write", path, errno);
}

// Whether the file system's locks hold across machines, so that a lock that can be taken proves
// that nobody holds it anywhere.
bool locks_are_known_to_hold(int fd) {
  struct statfs file_system {};
  if (::fstatfs(fd, &file_system) != 0) return false;
  constexpr decltype(file_system.f_type) kLocal[] = {
      EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC,       BTRFS_SUPER_MAGIC, TMPFS_MAGIC,
      RAMFS_MAGIC,      OVERLAYFS_SUPER_MAGIC, F2FS_SUPER_MAGIC};
  return std::find(std::begin(kLocal), std::end(kLocal), file_system.f_type) != std::end(kLocal);
}

bool somebody_answers(const HeadRecord& record) {
  constexpr auto kPatience = std::chrono::milliseconds(250);
  try {
    base::connect_tcp(record.host, record.port, Deadline::after(kPatience));
    return true;
  } catch (const Error&) {
    return false;  // for this question every reason is the same
  }
}

}  // namespace

// A file beside the path, whole and locked. Its name goes away with it.
struct HeadFile::Draft {
  std::string name;
  UniqueFd fd;

  explicit Draft(std::string own_name)
      : name(std::move(own_name)),
        fd(::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600)) {
    if (!fd) throw file_error("create", name, errno);
  }
  ~Draft() { ::unlink(name.c_str()); }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
};

std::unique_ptr<HeadFile::Draft> HeadFile::draft(const std::string& path, const Offer& offer) {
  const HeadRecord record = offer();
  auto result = std::make_unique<Draft>(fmt::format("{}.{}", path, record.nonce));
  if (!try_lock(result->fd.get(), result->name))
    throw file_error("lock", result->name, EWOULDBLOCK);
  write_record(result->fd.get(), result->name, format_head_record(record));
  return result;
}

std::optional<HeadRecord> HeadFile::claim(const std::string& path, const Offer& offer,
                                          Deadline deadline) {
  std::unique_ptr<Draft> own;
  const auto publish = [&](auto&& put) {
    if (put(own->name.c_str(), path.c_str()) != 0) return false;
    path_ = path;
    fd_ = std::move(own->fd);
    return true;
  };
  std::optional<HeadRecord> silent;
  constexpr int kPauseMs = 5;
  for (; !deadline.expired(); ::poll(nullptr, 0, kPauseMs)) {
    const UniqueFd fd = open_if_there(path);
    if (!fd) {
      if (!own) own = draft(path, offer);
      if (publish(::link)) return std::nullopt;
      if (errno != EEXIST) throw file_error("create", path, errno);
      continue;  // another agent was faster
    }
    const std::optional<HeadRecord> record = parse_head_record(read_record(fd.get(), path));
    if (!record) throw not_ours(path, "it has other contents");
    const bool unlocked = try_lock(fd.get(), path);
    if (!still_at(fd.get(), path)) continue;  // its head has just gone, or been replaced
    if (!unlocked) {
      // The lock is held by the head or, for an instant, by another agent that has found the head
      // dead.
      if (somebody_answers(*record)) return record;
      silent = record;
      continue;
    }
    if (!locks_are_known_to_hold(fd.get()) && somebody_answers(*record)) return record;
    if (!own) {
      // The dead head's lock is released first: others would take it as a sign that the head lives.
      ::flock(fd.get(), LOCK_UN);
      own = draft(path, offer);
      continue;
    }
    // Under that lock nobody else can do the same.
    if (publish(::rename)) return std::nullopt;
    throw file_error("replace", path, errno);
  }
  if (silent) return silent;  // it lives, and cannot be reached from here: who tries will say so
  throw Error(ErrorCode::kTimeout, fmt::format("'{}' changes all the time", path),
              "other agents claim it and give it up again",
              "look at what the other nodes say; name another path in --rdzv_endpoint");
}

HeadFile::HeadFile(HeadFile&& other) noexcept
    : path_(std::exchange(other.path_, "")), fd_(std::move(other.fd_)) {}

HeadFile& HeadFile::operator=(HeadFile&& other) noexcept {
  remove();
  path_ = std::exchange(other.path_, "");
  fd_ = std::move(other.fd_);
  return *this;
}

// Before the lock goes: afterwards the path may be another head's.
void HeadFile::remove() noexcept {
  if (fd_ && still_at(fd_.get(), path_)) ::unlink(path_.c_str());
  fd_.reset();
}

}  // namespace dtrun::launcher
