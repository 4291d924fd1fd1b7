// FileCalls: the calls to the file system that a checkpoint is written and read with, one virtual
// function for each system call, so that a test can record them, let any of them fail, or keep the
// files in memory. Results as those of the system call: -1 and errno. Thread-safe.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace dtrun::dtensor::dcp {

enum class FileKind : std::uint8_t { regular, folder, other };

struct FileStatus {
  FileKind kind = FileKind::other;
  std::uint64_t bytes = 0;
};

/// Direct I/O: offsets, sizes and addresses are multiples of so many bytes.
inline constexpr std::size_t kDirectBytes = 4096;

class FileCalls {
 public:
  virtual ~FileCalls() = default;

  /// For writing: a file that is not there yet.
  virtual int create(const std::string& path) = 0;
  /// For reading. A link is not followed, and a FIFO not waited for.
  virtual int open(const std::string& path) = 0;
  /// A folder, to sync it and to lock it.
  virtual int open_folder(const std::string& path) = 0;
  virtual ssize_t write(int fd, const void* bytes, std::size_t count) = 0;
  virtual ssize_t read_at(int fd, void* bytes, std::size_t count, std::uint64_t offset) = 0;
  /// Whether the page cache has the byte; true, too, where nothing tells.
  virtual bool is_cached(int fd, std::uint64_t offset) = 0;
  /// Reads and writes go past the page cache (O_DIRECT), or not. EINVAL where the file system
  /// cannot do that.
  virtual int direct(int fd, bool on) = 0;
  virtual int status(int fd, FileStatus& status) = 0;
  /// Of a path; a link is `other`.
  virtual int status(const std::string& path, FileStatus& status) = 0;
  virtual int sync(int fd) = 0;
  virtual int close(int fd) = 0;
  /// Held until the fd is closed; EWOULDBLOCK where another has it.
  virtual int lock(int fd) = 0;
  virtual int make_folder(const std::string& path) = 0;
  /// EEXIST where `to` is there.
  virtual int rename(const std::string& from, const std::string& to) = 0;
  /// Both names at once.
  virtual int exchange(const std::string& a, const std::string& b) = 0;
  virtual int remove(const std::string& path) = 0;
  virtual int remove_folder(const std::string& path) = 0;
  /// The names in a folder, in any order, without "." and "..".
  virtual int list(const std::string& path, std::vector<std::string>& names) = 0;
};

/// The machine's.
class SystemFileCalls : public FileCalls {
 public:
  int create(const std::string& path) override;
  int open(const std::string& path) override;
  int open_folder(const std::string& path) override;
  ssize_t write(int fd, const void* bytes, std::size_t count) override;
  ssize_t read_at(int fd, void* bytes, std::size_t count, std::uint64_t offset) override;
  bool is_cached(int fd, std::uint64_t offset) override;
  int direct(int fd, bool on) override;
  int status(int fd, FileStatus& status) override;
  int status(const std::string& path, FileStatus& status) override;
  int sync(int fd) override;
  int close(int fd) override;
  int lock(int fd) override;
  int make_folder(const std::string& path) override;
  int rename(const std::string& from, const std::string& to) override;
  int exchange(const std::string& a, const std::string& b) override;
  int remove(const std::string& path) override;
  int remove_folder(const std::string& path) override;
  int list(const std::string& path, std::vector<std::string>& names) override;
};

}  // namespace dtrun::dtensor::dcp
