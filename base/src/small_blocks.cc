#include "dtrun/base/small_blocks.h"

namespace dtrun::base::small_blocks {
namespace details {

constinit thread_local std::array<Kept, kLargest / kStep + 1> kept{};

}  // namespace details

namespace {

using details::kept;
using details::Kept;
using details::Link;

constinit thread_local bool is_closed = false;  ///< the thread ends

/// While it stands, the thread keeps blocks.
struct OpenThread {
  OpenThread() {
    for (Kept& size : kept) size.count = 0;
  }
  ~OpenThread() {
    for (Kept& size : kept) {
      size.count = kMostKept;
      while (size.first != nullptr) {
        void* const block = size.first;
        size.first = size.first->next;
        std::free(block);
      }
    }
    is_closed = true;
  }
  bool stands = true;
};
thread_local OpenThread open_thread;

}  // namespace

void details::release_at_most(void* block, std::size_t bytes) noexcept {
  Kept& size = kept[index_of(bytes)];
  // The first look at open_thread makes it.
  if (is_closed || !open_thread.stands || size.count >= kMostKept) return std::free(block);
  size.first = new (block) Link{size.first};
  ++size.count;
}

std::uint32_t kept_of(std::size_t bytes) {
  std::uint32_t count = 0;
  for (const Link* block = kept[details::index_of(bytes)].first; block != nullptr;
       block = block->next)
    ++count;
  return count;
}

}  // namespace dtrun::base::small_blocks
