#include "through_host/pinned_pool.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace dtrun::collectives::through_host {

namespace {

constexpr std::size_t kSmallestBlock = 4096;

}  // namespace

std::shared_ptr<void> PinnedPool::allocate(std::size_t bytes) {
  const std::size_t size = std::bit_ceil(std::max(bytes, kSmallestBlock));
  std::shared_ptr<void> block;
  {
    const std::scoped_lock lock(mutex_);
    std::vector<std::shared_ptr<void>>& blocks = free_[size];
    if (!blocks.empty()) {
      block = std::move(blocks.back());
      blocks.pop_back();
    }
  }
  if (!block) block = device_->allocate_pinned(size);
  void* const data = block.get();
  return {data, [pool = shared_from_this(), size, block](void*) mutable {
            const std::scoped_lock lock(pool->mutex_);
            pool->free_[size].push_back(std::move(block));
          }};
}

}  // namespace dtrun::collectives::through_host
