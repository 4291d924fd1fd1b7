// How much host memory tensors take. Thread-safe.
#pragma once

#include <cstddef>

namespace dtrun::tensors {

/// Bytes of the CPU tensors of this process that have 1 MiB and more; smaller ones are not counted.
/// 0 under AddressSanitizer, which has its own allocator.
struct HostMemory {
  std::size_t now;
  std::size_t peak;  ///< since reset_host_memory_peak(), or the program's start
};
HostMemory host_memory();
void reset_host_memory_peak();

}  // namespace dtrun::tensors
