// OpenFile: a file of a checkpoint while it is written or read, over FileCalls: whole writes and
// reads, calls that a signal has interrupted again, an Error for everything else. One thread's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/direct_memory.h"
#include "dtrun/dtensor/checkpoint/file_calls.h"

namespace dtrun::dtensor::dcp {

/// What came of locking: `unsupported` where the file system has no locks.
enum class Lock : std::uint8_t { held, busy, unsupported };

class OpenFile {
 public:
  /// A new one. @throws Error kSystem
  static OpenFile create(FileCalls& files, const std::string& path);
  /// For reading. @throws Error kNotFound; kProtocol for what is no regular file; kSystem
  static OpenFile open(FileCalls& files, const std::string& path);
  static OpenFile open_folder(FileCalls& files, const std::string& path);
  OpenFile(OpenFile&& other) noexcept;
  OpenFile& operator=(OpenFile&&) = delete;
  ~OpenFile();

  // All throw Error kSystem. Direct ones: sizes, addresses and the place in the file are multiples
  // of kDirectBytes.
  void write(std::string_view bytes);
  /// @throws Error kProtocol where the file ends before
  void read_at(std::uint64_t offset, char* bytes, std::size_t count);
  /// As read_at(), past the page cache once set_direct(true) was called.
  /// @return the bytes, in `memory`
  std::string_view read_direct_at(std::uint64_t offset, std::size_t count, DirectMemory& memory);
  /// Past the page cache from now on, or not. @return false where that cannot be done
  bool set_direct(bool on);
  bool is_cached(std::uint64_t offset) { return files_.is_cached(fd_, offset); }
  std::uint64_t bytes();
  Lock try_lock();
  /// What was written is on the disk.
  void sync();
  void close();
  const std::string& path() const { return path_; }

 private:
  bool turn_direct_off();
  void read_at(std::uint64_t offset, char* bytes, std::size_t least, std::size_t most);
  OpenFile(FileCalls& files, std::string path, int fd)
      : files_(files), path_(std::move(path)), fd_(fd) {}

  FileCalls& files_;
  std::string path_;
  int fd_;
  bool is_direct_ = false, can_be_direct_ = true;
};

/// All of a small file, such as a manifest. @throws Error as open(); kProtocol for one that is
/// larger
std::string whole_text(FileCalls& files, const std::string& path, std::uint64_t most_bytes);

// All throw Error kSystem.
void make_folder(FileCalls& files, const std::string& path);
/// One may be there already: another process may make it at the same time.
void ensure_folder(FileCalls& files, const std::string& path);
void sync_folder(FileCalls& files, const std::string& path);
bool is_there(FileCalls& files, const std::string& path);
bool is_folder(FileCalls& files, const std::string& path);
/// A folder, or a link to one.
bool leads_to_folder(FileCalls& files, const std::string& path);
std::vector<std::string> names_in(FileCalls& files, const std::string& path);
/// A folder without folders in it. @throws Error kProtocol, too, for a link to one
void remove_folder(FileCalls& files, const std::string& path);
/// The folder that has it: "." of "a".
std::string parent_of(const std::string& path);
std::string name_of(const std::string& path);
/// "folder/name".
std::string path_in(const std::string& folder, const std::string& name);

}  // namespace dtrun::dtensor::dcp
