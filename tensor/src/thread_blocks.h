// Blocks of host memory of 1 KiB to 1 MiB, kept by the thread that gives them back for its next
// block of that size. malloc keeps smaller blocks so, and host_blocks larger ones. Between them
// malloc consolidates its free list at nearly every end of a tensor, and gives pages back to the
// kernel, which clears them for the next one: both take longer than many an operation. A thread
// keeps at most kMostKeptBytes; it frees all of them where another one would be more, for its sizes
// may have changed, and when it ends.
#pragma once

#include <cstddef>

namespace dtrun::tensors::thread_blocks {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kLeastBytes = 1024;
#if defined(__SANITIZE_ADDRESS__)
// Its allocator sees what is used after its end.
constexpr std::size_t kMostBytes = 0;  // none
#else
constexpr std::size_t kMostBytes = std::size_t{1} << 20;
#endif
constexpr std::size_t kMostKeptBytes = std::size_t{8} << 20;

constexpr bool serves(std::size_t bytes) {
  return bytes > kLeastBytes && bytes < kMostBytes;
}
/// At kAlignment. @param bytes that serves() takes @return nullptr where there is no memory
void* allocate(std::size_t bytes) noexcept;
/// On any thread. @param bytes as asked for
void release(void* block, std::size_t bytes) noexcept;
/// Of this thread, now.
std::size_t kept_bytes();

}  // namespace dtrun::tensors::thread_blocks
