// DirectMemory: memory that direct I/O takes.
#pragma once

#include <cstdlib>
#include <memory>
#include <new>

#include "dtrun/dtensor/checkpoint/file_calls.h"

namespace dtrun::dtensor::dcp {

class DirectMemory {
 public:
  /// At least so many bytes; those that were there are lost.
  char* resize(std::size_t bytes) {
    if (bytes <= size_) return data();
    const std::size_t size = (bytes + kDirectBytes - 1) / kDirectBytes * kDirectBytes;
    bytes_.reset(static_cast<char*>(std::aligned_alloc(kDirectBytes, size)));
    size_ = bytes_ == nullptr ? 0 : size;
    if (bytes_ == nullptr) throw std::bad_alloc();
    return data();
  }
  char* data() const { return bytes_.get(); }
  std::size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(char* bytes) const { std::free(bytes); }
  };
  std::unique_ptr<char, Free> bytes_;
  std::size_t size_ = 0;
};

}  // namespace dtrun::dtensor::dcp
