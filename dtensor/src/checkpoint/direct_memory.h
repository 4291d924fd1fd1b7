// DirectMemory: memory that direct I/O takes, of huge pages where the kernel has them. A disk's
// queue takes one piece of contiguous memory at a time: of small pages each is a piece, and a
// virtual disk that wrote 4.5 GB/s out of huge pages wrote 2.5 out of small ones, and read 1.3
// instead of 4.2.
#pragma once

#include <cstddef>

#include "dtrun/dtensor/checkpoint/file_calls.h"
#include "dtrun/tensor/storage.h"

namespace dtrun::dtensor::dcp {

/// One owner's. It is a tensor's memory: that is of huge pages, and what is given back is kept for
/// the next, where the kernel would have to clear new pages.
class DirectMemory {
 public:
  /// At least so many bytes; those that were there are lost. @throws Error kSystem
  char* resize(std::size_t bytes) {
    if (bytes > size_) allocate(bytes);
    return data();
  }
  char* data() const { return data_; }

 private:
  void allocate(std::size_t bytes);

  tensors::StoragePointer storage_;
  char* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace dtrun::dtensor::dcp
