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
constexpr std::size_t kLargest = 1024;
// The address sanitizer's allocator finds uses after free, so under it no block is kept.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kKeepsBlocks = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool kKeepsBlocks = false;
#else
constexpr bool kKeepsBlocks = true;
#endif
#else
constexpr bool kKeepsBlocks = true;
#endif
constexpr std::uint32_t kMostKept = 64;

constexpr bool serves(std::size_t bytes) {
  return kKeepsBlocks && bytes <= kLargest && bytes > 0;
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
extern constinit thread_local std::array<Kept, kLargest / kStep + 1> kept;
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

/// A base class of T, whose objects are such blocks. They are made and destroyed in the library's
/// own units: a program may be built with the sanitizer, and the library without.
template <typename T>
struct Object {
  static void* operator new(std::size_t bytes) {
    static_assert(alignof(T) <= kStep && sizeof(T) <= kLargest);
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
