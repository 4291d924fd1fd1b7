// How much host memory tensors take. Thread-safe.
#pragma once

#include <cstddef>

namespace dtrun::tensors {

/// Bytes of the CPU tensors of this process that have 1 MiB and more; smaller ones, and those of a
/// HostAllocator, are not counted. 0 under AddressSanitizer, which has its own allocator.
struct HostMemory {
  std::size_t now;
  std::size_t peak;  ///< since reset_host_memory_peak(), or the program's start
};
HostMemory host_memory();
void reset_host_memory_peak();

/// While one stands, CPU tensors of all sizes are counted that this process makes and frees. Only
/// one stands at a time; a second one counts nothing.
class HostMemoryMeter {
 public:
  HostMemoryMeter();
  ~HostMemoryMeter();
  HostMemoryMeter(const HostMemoryMeter&) = delete;
  HostMemoryMeter& operator=(const HostMemoryMeter&) = delete;
  bool counts() const { return counts_; }
  /// Bytes that there are now beyond those at its beginning; below 0: fewer.
  std::ptrdiff_t now() const;
  /// The most of that since its beginning.
  std::ptrdiff_t peak() const;

 private:
  const bool counts_;
};

}  // namespace dtrun::tensors
