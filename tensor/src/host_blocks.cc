#include "host_blocks.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>

#include "dtrun/tensor/host_memory.h"

namespace dtrun::tensors::host_blocks {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kPlaces = 512;
/// So many, the last used, are not offered to the kernel: that takes as long as a small operation.
constexpr std::size_t kWarm = 4;
/// Nor do they have more bytes than that.
constexpr std::size_t kMostWarmBytes = std::size_t{512} << 20;

/// Eight sizes between a power of two and the next, whole huge pages where it has one; pages that
/// nobody touches take no memory.
std::size_t capacity(std::size_t bytes) {
  const std::size_t eighth = std::bit_floor(bytes) / 8;
  const std::size_t step = bytes < kHugePage ? eighth : std::max(eighth, kHugePage);
  return (bytes + step - 1) / step * step;
}

void* map(std::size_t size) {
  void* const raw =
      ::mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  char* const begin = static_cast<char*>(raw);
  const std::size_t lead = -reinterpret_cast<std::uintptr_t>(raw) % kHugePage;
  if (lead != 0) ::munmap(begin, lead);
  if (lead != kHugePage) ::munmap(begin + lead + size, kHugePage - lead);
  // Where the kernel has none, small pages do.
  ::madvise(begin + lead, size, MADV_HUGEPAGE);
  return begin + lead;
}

struct Block {
  void* data;
  std::size_t size;
  bool is_offered = false;  ///< the kernel may take its pages
};

void unmap(const Block& block) {
  ::munmap(block.data, block.size);
}

/// The kept blocks, the longest unused first. Never waits: a child that was forked in the middle of
/// a call finds it locked for good, and does without.
class Kept {
 public:
  void* take(std::size_t size) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return nullptr;
    // The one that was used last may still be in a cache.
    for (std::size_t i = count_; i-- > 0;) {
      if (blocks_[i].size == size) return remove(i).data;
    }
    return nullptr;
  }
  /// @return false: it is the caller's still
  bool keep(const Block& block) {
    if (block.size > kMostKeptBytes) return false;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return false;
    while (count_ == kPlaces || bytes_ + block.size > kMostKeptBytes) {
      unmap(remove(0));
    }
    blocks_[count_++] = block;
    bytes_ += block.size;
    offer_pages();
    return true;
  }
  void clear() {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    while (lock.owns_lock() && count_ != 0) unmap(remove(0));
  }
  std::size_t bytes() {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  void offer_pages() {
    std::size_t warm = 0;
    for (std::size_t i = count_; i-- > 0;) {
      Block& block = blocks_[i];
      warm += block.size;
      if (count_ - i <= kWarm && warm <= kMostWarmBytes) continue;
      if (block.is_offered) return;  // so are those before it
      ::madvise(block.data, block.size, MADV_FREE);
      block.is_offered = true;
    }
  }
  Block remove(std::size_t index) {
    const Block block = blocks_[index];
    const auto place = blocks_.begin() + static_cast<std::ptrdiff_t>(index);
    std::move(place + 1, blocks_.begin() + static_cast<std::ptrdiff_t>(count_), place);
    --count_;
    bytes_ -= block.size;
    return block;
  }

  std::mutex mutex_;
  std::array<Block, kPlaces> blocks_{};
  std::size_t count_ = 0;
  std::size_t bytes_ = 0;
};

// Without a destructor: a tensor may outlive what ends a program. The kernel takes the pages then.
constinit Kept kept;

constinit std::atomic<std::size_t> used = 0, most_used = 0;

void count_used(std::size_t bytes) {
  const std::size_t now = used.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  std::size_t most = most_used.load(std::memory_order_relaxed);
  while (most < now && !most_used.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
}

}  // namespace

void* allocate(std::size_t bytes) {
  const std::size_t size = capacity(bytes);
  void* data = kept.take(size);
  if (data == nullptr) data = map(size);
  if (data == nullptr) {
    kept.clear();
    data = map(size);
  }
  if (data != nullptr) count_used(bytes);
  return data;
}

void release(void* block, std::size_t bytes) noexcept {
  used.fetch_sub(bytes, std::memory_order_relaxed);
  const std::size_t size = capacity(bytes);
  if (!kept.keep({block, size, false})) unmap({block, size, false});
}

// By way of addresses that nobody has yet. What is moved away leaves its addresses mapped, so that
// no other thread's mapping comes between. Always the whole size, so that the kernel notes each
// block as one range: mremap takes one at a time.
bool exchange_contents(void* one, void* other, std::size_t bytes) noexcept {
  const std::size_t size = capacity(bytes);
  if (size % kHugePage != 0) return false;
  const auto move = [size](void* from, void* to, int flags) {
    return ::mremap(from, size, size, MREMAP_MAYMOVE | MREMAP_FIXED | flags, to) != MAP_FAILED;
  };
  void* const between = map(size);
  if (between == nullptr) return false;
  if (!move(one, between, MREMAP_DONTUNMAP)) {
    // A kernel before 5.7 does not know the flag. After another error the addresses may be free.
    if (errno == EINVAL) ::munmap(between, size);
    return false;
  }
  const bool is_exchanged = move(other, one, MREMAP_DONTUNMAP);
  void* const last = is_exchanged ? other : one;
  if (move(between, last, 0)) return is_exchanged;
  // The process has as many ranges as the kernel allows. Its own are still there, mostly.
  ::mmap(last, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
         0);
  std::memcpy(last, between, bytes);
  ::munmap(between, size);
  return is_exchanged;
}

std::size_t kept_bytes() {
  return kept.bytes();
}

}  // namespace dtrun::tensors::host_blocks

namespace dtrun::tensors {

HostMemory host_memory() {
  return {host_blocks::used.load(std::memory_order_relaxed),
          host_blocks::most_used.load(std::memory_order_relaxed)};
}

void reset_host_memory_peak() {
  host_blocks::most_used.store(host_blocks::used.load(std::memory_order_relaxed),
                               std::memory_order_relaxed);
}

}  // namespace dtrun::tensors
