#include "store/store_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "dtrun/base/backoff.h"
#include "dtrun/base/error.h"

namespace dtrun::rendezvous {
namespace {

using base::Deadline;
using base::Error;
using base::ErrorCode;
using base::system_error;
using Length = std::uint32_t;

constexpr std::size_t kMostBytes = 64 << 20;
constexpr Deadline::Duration kShortestPause = std::chrono::microseconds(50);
constexpr Deadline::Duration kLongestPause = std::chrono::milliseconds(2);

// Every store file begins with these bytes: the length and the text of the first key.
constexpr std::string_view kBeginning("\x09\0\0\0refcount/", 13);

// Far behind all records. Whoever has the file open holds a read lock here, so whoever can have a
// write lock is alone. Locks of this kind and flock(2)'s, which guard the records as PyTorch's do,
// do not see each other, except on network file systems.
constexpr off_t kOpenMark = off_t{1} << 62;

void pause_until(Deadline deadline) {
  ::poll(nullptr, 0, deadline.poll_timeout_ms());
}

bool is_network(long type) {
  // NFS, SMB (two), Ceph, Lustre, FUSE; not all of them have names in the kernel's header.
  for (const long known :
       {0x6969L, 0xfe534d42L, 0xff534d42L, 0x00c36400L, 0x0bd00bd0L, 0x65735546L})
    if (type == known) return true;
  return false;
}

int lock_open_mark(int fd, short kind) {
  struct flock lock {};
  lock.l_type = kind;
  lock.l_whence = SEEK_SET;
  lock.l_start = kOpenMark;
  lock.l_len = 1;
  return ::fcntl(fd, F_OFD_SETLK, &lock);
}

std::string read_at(int fd, off_t position, std::size_t size, const std::string& path) {
  std::string bytes(size, '\0');
  std::size_t done = 0;
  while (done < size) {
    const ssize_t n =
        ::pread(fd, bytes.data() + done, size - done, position + static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw system_error("read the store file " + path);
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  bytes.resize(done);
  return bytes;
}

// nullopt where the text is not whole.
std::optional<std::string> take_text(std::string_view& bytes) {
  Length length = 0;
  if (bytes.size() < sizeof length) return std::nullopt;
  std::memcpy(&length, bytes.data(), sizeof length);
  if (bytes.size() - sizeof length < length) return std::nullopt;
  std::string text(bytes.substr(sizeof length, length));
  bytes.remove_prefix(sizeof length + length);
  return text;
}

void put_text(std::string& bytes, const std::string& text) {
  const Length length = static_cast<Length>(text.size());
  bytes.append(reinterpret_cast<const char*>(&length), sizeof length);
  bytes += text;
}

}  // namespace

StoreFile::Lock::Lock(const StoreFile& file, Kind kind, Deadline deadline, const Pause& pause)
    : fd_(file.fd()) {
  const auto begin = Deadline::Clock::now();
  const int operation = (kind == Kind::shared ? LOCK_SH : LOCK_EX) | LOCK_NB;
  base::Backoff backoff(kShortestPause, kLongestPause);
  while (::flock(fd_, operation) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) throw system_error("lock the store file " + file.path());
    if (deadline.expired())
      throw Error(ErrorCode::kTimeout,
                  fmt::format("cannot lock the store file {} for {}", file.path(),
                              base::format_duration(Deadline::Clock::now() - begin)),
                  "another process holds the lock: it may be stopped inside an operation",
                  "fuser " + file.path() + " shows who has it open");
    pause(Deadline::after(backoff.next()).earlier(deadline));
  }
}

StoreFile::Lock::~Lock() {
  if (fd_ >= 0) ::flock(fd_, LOCK_UN);
}

StoreFile::Lock StoreFile::enter(FileStoreOptions::Leftover leftover, Deadline deadline) {
  while (true) {
    open();
    Lock lock(*this, Lock::Kind::exclusive, deadline, pause_until);
    // Its last user may have removed it while we waited for the lock.
    if (!is_in_place()) continue;
    check_is_store();
    if (on_network_) return lock;
    if (leftover == FileStoreOptions::Leftover::discard && alone()) cut_to(0);
    mark_open();
    return lock;
  }
}

void StoreFile::open() {
  fd_ = base::UniqueFd(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd_)
    throw system_error("open the store file " + path_,
                       "its folder must exist, and all ranks must be allowed to write there");
  struct statfs where {};
  if (::fstatfs(fd_.get(), &where) != 0) throw system_error("inspect the store file " + path_);
  on_network_ = is_network(where.f_type);
}

// The file may be somebody's data, named by mistake: it must not be written to.
void StoreFile::check_is_store() const {
  const std::string beginning = read_at(fd(), 0, kBeginning.size(), path_);
  if (kBeginning.starts_with(beginning)) return;
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{} is not a store's file", path_),
              "it holds something else, and was left as it is",
              "name a file that does not exist yet");
}

bool StoreFile::alone() {
  if (lock_open_mark(fd(), F_WRLCK) == 0) return true;
  if (errno == EAGAIN || errno == EACCES) return false;
  throw system_error("lock the store file " + path_);
}

void StoreFile::mark_open() {
  if (lock_open_mark(fd(), F_RDLCK) != 0) throw system_error("lock the store file " + path_);
}

bool StoreFile::is_in_place() const {
  struct stat mine {};
  struct stat there {};
  if (::fstat(fd(), &mine) != 0) throw system_error("inspect the store file " + path_);
  return ::stat(path_.c_str(), &there) == 0 && mine.st_ino == there.st_ino &&
         mine.st_dev == there.st_dev;
}

void StoreFile::remove() {
  ::unlink(path_.c_str());  // where that fails it stays, which harms nobody
}

off_t StoreFile::size() const {
  struct stat status {};
  if (::fstat(fd(), &status) != 0) throw system_error("inspect the store file " + path_);
  return status.st_size;
}

void StoreFile::cut_to(off_t size) const {
  while (::ftruncate(fd(), size) != 0)
    if (errno != EINTR) throw system_error("shorten the store file " + path_);
}

std::vector<StoreRecord> StoreFile::read_new() {
  const off_t end = size();
  if (end < position_)
    throw Error(ErrorCode::kProtocol, fmt::format("the store file {} has become shorter", path_),
                "another program has changed it", "give each job a file of its own");
  std::vector<StoreRecord> records;
  if (end == position_) return records;
  const std::string bytes =
      read_at(fd(), position_, static_cast<std::size_t>(end - position_), path_);
  std::string_view left = bytes;
  while (true) {
    std::optional<std::string> key = take_text(left);
    if (!key) break;
    std::optional<std::string> value = take_text(left);
    if (!value) break;
    records.push_back({std::move(*key), std::move(*value)});
    position_ = end - static_cast<off_t>(left.size());
  }
  return records;
}

void StoreFile::append(const std::vector<StoreRecord>& records) {
  std::string bytes;
  for (const StoreRecord& record : records) {
    if (record.key.size() > kMostBytes || record.value.size() > kMostBytes)
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("a key of {} and a value of {} bytes do not fit into a store file",
                              record.key.size(), record.value.size()),
                  fmt::format("each may have {} bytes", kMostBytes));
    put_text(bytes, record.key);
    put_text(bytes, record.value);
  }
  // Bytes behind the last whole record belong to a writer that died before it had finished.
  if (size() > position_) cut_to(position_);
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::pwrite(fd(), bytes.data() + done, bytes.size() - done,
                               position_ + static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const Error error = system_error("write to the store file " + path_);
      cut_to(position_);
      throw error;
    }
    done += static_cast<std::size_t>(n);
  }
  position_ += static_cast<off_t>(bytes.size());
}

}  // namespace dtrun::rendezvous
