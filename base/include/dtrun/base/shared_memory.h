// SharedMemory: a memfd and its mapping. Nothing named exists in the file system, so nothing can be
// left behind. Its size is sealed: another process with the fd cannot take away bytes that are
// mapped elsewhere (SIGBUS). Move-only owner of both the fd and the mapping.
#pragma once

#include <cstddef>
#include <string>

#include "dtrun/base/unique_fd.h"

namespace dtrun::base {

class SharedMemory {
 public:
  SharedMemory() = default;
  /// A new memfd of `size` bytes, committed (fallocate): a lack of memory is an Error here, never a
  /// SIGBUS later. @throws Error kSystem
  static SharedMemory create(const std::string& name, std::size_t size);
  /// A new memfd that spans `span` bytes of which none is committed: commit() before touching any.
  /// The first `mapped` of them are mapped.
  static SharedMemory reserve(const std::string& name, std::size_t span, std::size_t mapped);
  /// Maps a memfd that a peer or parent made. @throws Error kSystem
  static SharedMemory map(UniqueFd fd, std::size_t size);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  /// Takes real memory for these reserved bytes. @throws Error kSystem
  void commit(std::size_t offset, std::size_t size) const { commit(fd(), offset, size); }
  /// The same of a memfd.
  static void commit(int fd, std::size_t offset, std::size_t size);

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  int fd() const { return fd_.get(); }
  /// The memory stays mapped.
  void close_file() { fd_.reset(); }
  bool valid() const { return data_ != nullptr; }

 private:
  UniqueFd fd_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace dtrun::base
