#include "tensor_heap.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "dtrun/base/error.h"

namespace dtrun::collectives::cpu {

namespace {

constexpr std::size_t kPage = 4096;

base::UniqueFd another_descriptor(int fd) {
  base::UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy) throw base::system_error("keep the file of the shared memory");
  return copy;
}

// How much of the span is in core dumps, in large steps: each is a system call.
std::size_t dumped_end(std::size_t used) {
  constexpr std::size_t kStep = std::size_t{64} << 20;
  return (used + kStep - 1) / kStep * kStep;
}

}  // namespace

TensorHeap::TensorHeap(const Commons& commons, int world_rank)
    : file_(another_descriptor(commons.fd())),
      begin_(commons.tensors_offset(world_rank)),
      memory_(commons.fd(), begin_, Commons::kTensorSpan) {
  ::madvise(memory_.at(0), Commons::kTensorSpan, MADV_DONTDUMP);
}

TensorHeap::~TensorHeap() {
  if (!fork_mark_.in_child() && used_ > 0) give_back(0, used_);
}

tensors::StoragePointer TensorHeap::allocate(std::size_t bytes) {
  if (fork_mark_.in_child())
    throw base::Error(base::ErrorCode::kUsage, "shared memory is not allocated in a forked child",
                      "it is the parent's, whose tensors would be overwritten",
                      "start the program again (exec) instead of forking it");
  if (bytes > Commons::kTensorSpan - kPage)
    throw base::Error(base::ErrorCode::kSystem,
                      fmt::format("cannot allocate {} bytes of shared memory for a tensor", bytes),
                      fmt::format("a rank has {} bytes of it at the most", Commons::kTensorSpan),
                      "make the largest tensors outside of the HostAllocatorScope");
  const std::size_t taken = std::max(kPage, (bytes + kPage - 1) / kPage * kPage);
  const Offset offset = take(taken);
  try {
    return tensors::Storage::wrap(
        memory_.at(offset), bytes, tensors::kCpu,
        [self = shared_from_this(), offset, taken] { self->release(offset, taken); });
  } catch (...) {
    release(offset, taken);
    throw;
  }
}

std::optional<Offset> TensorHeap::offset_of(const void* data) const {
  const auto* const at = static_cast<const std::byte*>(data);
  const std::byte* const first = memory_.at(0);
  if (std::less<>()(at, first) || !std::less<>()(at, first + Commons::kTensorSpan)) return {};
  return static_cast<Offset>(at - first);
}

std::size_t TensorHeap::kept_bytes() const {
  const std::scoped_lock lock(mutex_);
  return kept_;
}

// The smallest that is large enough; of those, memory before holes.
TensorHeap::Gaps::iterator TensorHeap::best_gap(std::size_t bytes) {
  auto best = gaps_.end();
  for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
    if (gap->second.bytes < bytes) continue;
    const auto rank = [](const Gap& each) { return std::pair(!each.is_memory, each.bytes); };
    if (best == gaps_.end() || rank(gap->second) < rank(best->second)) best = gap;
  }
  return best;
}

TensorHeap::Gaps::iterator TensorHeap::first_of_run(std::size_t bytes) {
  auto first = gaps_.begin();
  Offset end = 0;
  for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
    if (gap->first != end) first = gap;
    end = gap->first + gap->second.bytes;
    if (end - first->first >= bytes) return first;
  }
  return end == used_ ? first : gaps_.end();
}

Offset TensorHeap::take(std::size_t bytes) {
  const std::scoped_lock lock(mutex_);
  auto gap = best_gap(bytes);
  if (gap == gaps_.end()) gap = first_of_run(bytes);
  const Offset begin = gap == gaps_.end() ? used_ : gap->first, end = begin + bytes;
  if (end > Commons::kTensorSpan)
    throw base::Error(base::ErrorCode::kSystem,
                      fmt::format("cannot allocate {} bytes of shared memory for a tensor", bytes),
                      fmt::format("this rank has {} bytes of it, of which {} have been in use",
                                  Commons::kTensorSpan, used_),
                      "free tensors, or make some outside of the HostAllocatorScope");
  const Offset end_of_gaps = std::min(end, used_);
  make_memory(gap, end);
  for (Offset taken = begin; taken < end_of_gaps;) {
    const Gap found = gap->second;
    const std::size_t count = std::min(found.bytes, end_of_gaps - taken);
    if (found.is_memory) kept_ -= count;
    gap = gaps_.erase(gap);
    taken += count;
    if (found.bytes > count) gaps_[taken] = {found.bytes - count, found.is_memory};
  }
  return begin;
}

void TensorHeap::make_memory(Gaps::iterator first, Offset end) {
  const auto bytes_of = [end](const auto& gap) {
    return std::min(gap.second.bytes, end - gap.first);
  };
  auto gap = first;
  try {
    for (; gap != gaps_.end() && gap->first < end; ++gap)
      if (!gap->second.is_memory)
        base::SharedMemory::commit(file_.get(), begin_ + gap->first, bytes_of(*gap));
    if (end > used_) grow(end - used_);
  } catch (...) {
    for (; first != gap; ++first)
      if (!first->second.is_memory) give_back(first->first, bytes_of(*first));
    throw;
  }
}

void TensorHeap::grow(std::size_t bytes) {
  base::SharedMemory::commit(file_.get(), begin_ + used_, bytes);
  // Of the whole span a core dump would read every page, used or not.
  const std::size_t dumped = dumped_end(used_), end = dumped_end(used_ + bytes);
  if (end > dumped) ::madvise(memory_.at(dumped), end - dumped, MADV_DODUMP);
  used_ += bytes;
}

void TensorHeap::release(Offset offset, std::size_t bytes) noexcept {
  if (fork_mark_.in_child()) return;
  const std::scoped_lock lock(mutex_);
  const bool is_given_back = kept_ + bytes > kMostKeptBytes && give_back(offset, bytes);
  if (!is_given_back) kept_ += bytes;
  add_gap(offset, {bytes, !is_given_back});
}

bool TensorHeap::give_back(Offset offset, std::size_t bytes) const noexcept {
  return ::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                     static_cast<off_t>(begin_ + offset), static_cast<off_t>(bytes)) == 0;
}

// Joins it to its neighbours of the same kind.
void TensorHeap::add_gap(Offset offset, Gap gap) {
  auto after = gaps_.lower_bound(offset);
  if (after != gaps_.end() && after->first == offset + gap.bytes &&
      after->second.is_memory == gap.is_memory) {
    gap.bytes += after->second.bytes;
    after = gaps_.erase(after);
  }
  if (after != gaps_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second.bytes == offset &&
        before->second.is_memory == gap.is_memory) {
      before->second.bytes += gap.bytes;
      return;
    }
  }
  gaps_[offset] = gap;
}

}  // namespace dtrun::collectives::cpu
