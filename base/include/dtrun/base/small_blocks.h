// Blocks of at most 1 KiB, for objects that come and go with every call, such as a tensor's. The
// thread that frees a block keeps it for its next one of that size, which takes a fifth of the
// instructions of malloc and free. A thread keeps at most kMostKept of a size, and none when it
// ends.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace dtrun::base::small_blocks {

constexpr std::size_t kStep = 16;  ///< between sizes; blocks are aligned to it
#if defined(__SANITIZE_ADDRESS__)
// The sanitizer's allocator finds uses after free, so blocks are not kept under it.
constexpr std::size_t kMostBytes = 0;  // none
#else
constexpr std::size_t kMostBytes = 1024;
#endif
constexpr std::uint32_t kMostKept = 64;

constexpr bool serves(std::size_t bytes) {
  return bytes <= kMostBytes && bytes > 0;
}

namespace details {

/// A kept block begins with the next one of its size.
struct Link {
  Link* next;
};
struct Kept {
  Link* first = nullptr;
  /// Until the thread's first release, and when it ends, as if there were enough.
  std::uint32_t count = kMostKept;
};
/// Without a destructor: objects may end after those of the thread have run.
extern constinit thread_local std::array<Kept, kMostBytes / kStep + 1> kept;
constexpr std::size_t index_of(std::size_t bytes) {
  return (bytes + kStep - 1) / kStep;
}
void release_at_most(void* block, std::size_t bytes) noexcept;

}  // namespace details

/// @param bytes a size that serves() accepts @return nullptr without memory
inline void* allocate(std::size_t bytes) noexcept {
  details::Kept& kept = details::kept[details::index_of(bytes)];
  details::Link* const block = kept.first;
  if (block == nullptr) [[unlikely]]
    return std::malloc(details::index_of(bytes) * kStep);
  kept.first = block->next;
  --kept.count;
  return block;
}
/// May be called on any thread. @param bytes as passed to allocate
inline void release(void* block, std::size_t bytes) noexcept {
  details::Kept& kept = details::kept[details::index_of(bytes)];
  if (kept.count >= kMostKept) [[unlikely]]
    return details::release_at_most(block, bytes);
  kept.first = new (block) details::Link{kept.first};
  ++kept.count;
}

/// How many of that size this thread keeps now.
std::uint32_t kept_of(std::size_t bytes);

/// A base class of T, whose objects are such blocks.
template <typename T>
struct Object {
  static void* operator new(std::size_t bytes) {
    static_assert(alignof(T) <= kStep && sizeof(T) <= 1024);
    if (!serves(sizeof(T))) return ::operator new(bytes);
    void* const block = allocate(sizeof(T));
    if (block == nullptr) [[unlikely]]
      throw std::bad_alloc();
    return block;
  }
  static void operator delete(void* block) noexcept {
    serves(sizeof(T)) ? release(block, sizeof(T)) : ::operator delete(block);
  }
};

}  // namespace dtrun::base::small_blocks
