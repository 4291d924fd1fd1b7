// DirectMemory: memory that direct I/O takes, of huge pages where the kernel has them. A disk's
// queue takes one piece of contiguous memory at a time: of small pages each is a piece, and a
// virtual disk that wrote 4.5 GB/s out of huge pages wrote 2.5 out of small ones, and read 1.3
// instead of 4.2.
#pragma once

#include <cstddef>
#include <memory>

#include "dtrun/dtensor/checkpoint/file_calls.h"

namespace dtrun::dtensor::dcp {

/// One owner's.
class DirectMemory {
 public:
  /// At least so many bytes; those that were there are lost. @throws std::bad_alloc
  char* resize(std::size_t bytes) {
    if (bytes > size_) allocate(bytes);
    return data();
  }
  char* data() const { return bytes_.get(); }
  std::size_t size() const { return size_; }

 private:
  void allocate(std::size_t bytes);

  struct Unmap {
    std::size_t size;
    void operator()(char* bytes) const;
  };
  std::unique_ptr<char, Unmap> bytes_;
  std::size_t size_ = 0;
};

}  // namespace dtrun::dtensor::dcp
