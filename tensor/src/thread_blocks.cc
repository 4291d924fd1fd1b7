#include "thread_blocks.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace dtrun::tensors::thread_blocks {
namespace {

/// Eight sizes between a power of two and the next.
struct SizeClass {
  explicit SizeClass(std::size_t bytes) {
    // Without a division: the step is a power of two.
    const int shift = std::bit_width(bytes - 1) - 4;
    const std::size_t steps = ((bytes - 1) >> shift) + 1;  // 9 to 16
    capacity = steps << shift;
    index = static_cast<std::size_t>(shift - kLeastShift) * 8 + steps - 9;
  }
  static constexpr int kLeastShift = std::countr_zero(kLeastBytes / 8);
  static constexpr std::size_t kCount = 10 * 8;  // from 1 KiB to 1 MiB

  std::size_t capacity;
  std::size_t index;
};

/// A kept block begins with the next one of its size.
struct Link {
  Link* next;
};

/// Without a destructor: tensors may end after those of the thread have run.
struct Kept {
  std::array<Link*, SizeClass::kCount> first;
  std::size_t bytes;
  bool is_closed;  ///< the thread ends
};
constinit thread_local Kept kept{};

void free_all() noexcept {
  for (Link*& first : kept.first) {
    while (first != nullptr) {
      void* const block = first;
      first = first->next;
      std::free(block);
    }
  }
  kept.bytes = 0;
}

struct EndOfThread {
  ~EndOfThread() {
    kept.is_closed = true;
    free_all();
  }
  bool stands = true;
};
thread_local EndOfThread end_of_thread;

}  // namespace

void* allocate(std::size_t bytes) noexcept {
  const SizeClass size(bytes);
  Link*& first = kept.first[size.index];
  if (first != nullptr) {
    void* const block = first;
    first = first->next;
    kept.bytes -= size.capacity;
    return block;
  }
  void* block = nullptr;
  return ::posix_memalign(&block, kAlignment, size.capacity) == 0 ? block : nullptr;
}

void release(void* block, std::size_t bytes) noexcept {
  const SizeClass size(bytes);
  if (kept.is_closed) return std::free(block);
  if (kept.bytes + size.capacity > kMostKeptBytes) free_all();
  // The first use of it in a thread orders its end.
  if (kept.bytes == 0 && !end_of_thread.stands) return std::free(block);
  kept.first[size.index] = new (block) Link{kept.first[size.index]};
  kept.bytes += size.capacity;
}

std::size_t kept_bytes() {
  return kept.bytes;
}

}  // namespace dtrun::tensors::thread_blocks
