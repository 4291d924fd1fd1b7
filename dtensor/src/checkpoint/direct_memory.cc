#include "checkpoint/direct_memory.h"

#include <algorithm>
#include <cstdint>

namespace dtrun::dtensor::dcp {

// A huge page at least: smaller blocks of tensors have none.
void DirectMemory::allocate(std::size_t bytes) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  storage_ = {};
  size_ = 0;
  const std::size_t size = std::max(bytes, kHugePage);
  storage_ = tensors::Storage::allocate(size + kDirectBytes, tensors::kCpu);
  char* const begin = static_cast<char*>(storage_->data());
  data_ = begin + -reinterpret_cast<std::uintptr_t>(begin) % kDirectBytes;
  size_ = size;
}

}  // namespace dtrun::dtensor::dcp
