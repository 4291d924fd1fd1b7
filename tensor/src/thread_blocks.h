// Blocks of host memory of some KiB, kept by the thread that gives them back for its next block of
// that size. malloc keeps small blocks so, and host_blocks large ones; between them malloc
// consolidates its free list at nearly every end of a tensor, which takes longer than a small
// operation. At most kMostKeptBytes a thread, which it frees when it ends.
#pragma once

#include <cstddef>

namespace dtrun::tensors::thread_blocks {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kLeastBytes = 1024;
#if defined(__SANITIZE_ADDRESS__)
// Its allocator sees what is used after its end.
constexpr std::size_t kMostBytes = 0;
#else
constexpr std::size_t kMostBytes = std::size_t{64} << 10;
#endif
constexpr std::size_t kMostKeptBytes = std::size_t{1} << 20;

constexpr bool serves(std::size_t bytes) {
  return bytes > kLeastBytes && bytes <= kMostBytes;
}
/// At kAlignment. @param bytes that serves() takes @return nullptr where there is no memory
void* allocate(std::size_t bytes) noexcept;
/// On any thread. @param bytes as asked for
void release(void* block, std::size_t bytes) noexcept;
/// Of this thread, now.
std::size_t kept_bytes();

}  // namespace dtrun::tensors::thread_blocks
