// Large blocks of host memory, of huge pages where the kernel has them. What is given back is kept
// for the next block of its size: the kernel would clear every page again, which takes longer than
// most operations. At most kMostKeptBytes of a process, the longest unused first out; and the
// kernel may take the pages of all but the four used last, or 512 MiB, before it runs short
// (MADV_FREE).
#pragma once

#include <cstddef>

namespace dtrun::tensors::host_blocks {

#if defined(__SANITIZE_ADDRESS__)
// Its allocator sees what is used after its end.
constexpr std::size_t kLeastBytes = static_cast<std::size_t>(-1);
#else
constexpr std::size_t kLeastBytes = std::size_t{1} << 20;
#endif
constexpr std::size_t kMostKeptBytes = std::size_t{1} << 30;

/// Begins at a huge page. @param bytes some kLeastBytes at least
/// @return nullptr where there is no memory (errno says why)
void* allocate(std::size_t bytes);
/// @param bytes as asked for
void release(void* block, std::size_t bytes) noexcept;
/// Two blocks of the same size change contents: their pages change places, which takes
/// microseconds, and their addresses stay. Nobody may use either meanwhile.
/// @param bytes of both, as asked for
/// @return false: nothing was done: a size that is not of huge pages, or a kernel that cannot
bool exchange_contents(void* one, void* other, std::size_t bytes) noexcept;
/// Of this process, now.
std::size_t kept_bytes();

}  // namespace dtrun::tensors::host_blocks
