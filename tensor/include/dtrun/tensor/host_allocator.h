// HostAllocator: where the memory of a thread's new tensors on the cpu comes from, in place of the
// process' own heap. A process group has one whose memory its ranks read where it lies.
#pragma once

#include <cstddef>

#include "dtrun/tensor/storage.h"

namespace dtrun::tensors {

class HostAllocator {
 public:
  virtual ~HostAllocator() = default;
  /// Aligned to 64 bytes. Thread-safe. @throws Error kSystem where there is no memory
  virtual StoragePointer allocate(std::size_t bytes) = 0;
};

/// While it stands, tensors that its thread makes on the cpu have their memory from there; those of
/// fewer than kLeastBytes have not. Scopes may stand in one another: the innermost counts.
class HostAllocatorScope {
 public:
  static constexpr std::size_t kLeastBytes = 16 << 10;

  /// @param allocator outlives this
  explicit HostAllocatorScope(HostAllocator& allocator);
  ~HostAllocatorScope();
  HostAllocatorScope(const HostAllocatorScope&) = delete;
  HostAllocatorScope& operator=(const HostAllocatorScope&) = delete;

 private:
  friend class Storage;
  static constinit thread_local HostAllocator* innermost_;
  HostAllocator* const around_;
};

}  // namespace dtrun::tensors
