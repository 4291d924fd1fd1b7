// Blocks of host memory of 1 KiB to 1 MiB. The thread that frees a block keeps it for its next
// block of that size. small_blocks do so for smaller ones, and host_blocks for larger ones. For the
// sizes in between malloc would consolidate its free list whenever a tensor ends, and return pages
// to the kernel, which clears them again; both take longer than many operations. A thread keeps at
// most kMostKeptBytes. It frees all kept blocks when another one would exceed that, because the
// program's sizes may have changed, and when it ends.
#pragma once

#include <cstddef>

#include "dtrun/base/small_blocks.h"

namespace dtrun::tensors::thread_blocks {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kLeastBytes = base::small_blocks::kLargest;
constexpr std::size_t kMostBytes = base::small_blocks::kKeepsBlocks ? std::size_t{1} << 20 : 0;
constexpr std::size_t kMostKeptBytes = std::size_t{8} << 20;

constexpr bool serves(std::size_t bytes) {
  return bytes > kLeastBytes && bytes < kMostBytes;
}
/// Aligned to kAlignment. @param bytes a size that serves() accepts @return nullptr without memory
void* allocate(std::size_t bytes) noexcept;
/// May be called on any thread. @param bytes as passed to allocate
void release(void* block, std::size_t bytes) noexcept;
/// Bytes that this thread keeps now.
std::size_t kept_bytes();

}  // namespace dtrun::tensors::thread_blocks
