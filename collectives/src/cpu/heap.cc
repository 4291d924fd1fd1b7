#include "heap.h"

#include <algorithm>
#include <cstring>

#include "dtrun/base/check.h"
#include "dtrun/base/error.h"

namespace dtrun::collectives::cpu {

namespace {

constexpr std::size_t kAlignment = 128;
constexpr std::size_t kCommitStep = 64 << 10;

std::size_t round_up(std::size_t value, std::size_t step) {
  return (value + step - 1) / step * step;
}

}  // namespace

// The first bytes stay unused, so that offset 0 can mean "no block".
Heap::Heap(const Commons& commons, int world_rank)
    : commons_(commons),
      begin_(commons.heap_offset(world_rank)),
      memory_(commons.fd(), begin_, Commons::kHeapSpan),
      used_(kAlignment) {}

Offset Heap::allocate(std::size_t bytes) {
  const std::scoped_lock lock(mutex_);
  bytes = round_up(std::max<std::size_t>(bytes, 1), kAlignment);
  const auto reusable = free_.lower_bound(bytes);
  // A block more than twice as large is kept for larger requests.
  if (reusable != free_.end() && reusable->first <= 2 * bytes) {
    const Offset offset = reusable->second;
    sizes_[offset] = reusable->first;
    free_.erase(reusable);
    std::memset(at(offset), 0, bytes);
    return offset;
  }
  if (used_ + bytes > Commons::kHeapSpan)
    throw base::Error(base::ErrorCode::kSystem, "this rank's shared-memory heap is full",
                      "its span is fixed when the process starts", "use fewer groups");
  if (used_ + bytes > committed_) {
    const std::size_t end = std::min(Commons::kHeapSpan, round_up(used_ + bytes, kCommitStep));
    commons_.commit(begin_ + committed_, end - committed_);
    committed_ = end;
  }
  const Offset offset = used_;
  used_ += bytes;
  sizes_[offset] = bytes;
  return offset;
}

void Heap::free(Offset offset) {
  const std::scoped_lock lock(mutex_);
  const auto found = sizes_.find(offset);
  DT_CHECK(found != sizes_.end());
  free_.emplace(found->second, offset);
  sizes_.erase(found);
}

}  // namespace dtrun::collectives::cpu
