#include "cuda/block_pool.h"

#include <algorithm>
#include <functional>
#include <tuple>

#include "dtrun/base/check.h"

namespace dtrun::tensors::cuda {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kSmallLimit = kMiB;  ///< blocks up to this are small
constexpr std::size_t kSmallSegment = 2 * kMiB;
constexpr std::size_t kLargeSegment = 20 * kMiB;
constexpr std::size_t kOwnSegmentLimit = 10 * kMiB;  ///< from here on a block is a segment
constexpr std::size_t kSegmentUnit = 2 * kMiB;

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

std::size_t block_bytes(std::size_t bytes) {
  // No tensor is without an address of its own.
  return std::max(round_up(bytes, kBlockUnit), kBlockUnit);
}

/// What is left of a small block is worth keeping from the smallest size on; large blocks are not
/// cut into pieces that only small ones could use.
bool worth_splitting(const Block& block, std::size_t bytes) {
  const std::size_t rest = block.bytes - bytes;
  return block.is_small ? rest >= kBlockUnit : rest > kSmallLimit;
}

}  // namespace

std::size_t segment_bytes(std::size_t bytes) {
  const std::size_t rounded = block_bytes(bytes);
  if (rounded <= kSmallLimit) return kSmallSegment;
  if (rounded < kOwnSegmentLimit) return kLargeSegment;
  return round_up(rounded, kSegmentUnit);
}

bool BlockPool::Fit::operator()(const Block* a, const Block* b) const {
  const auto key = [](const Block* block) {
    return std::tuple(block->is_small, reinterpret_cast<std::uintptr_t>(block->stream),
                      block->bytes, reinterpret_cast<std::uintptr_t>(block->data));
  };
  return key(a) < key(b);
}

Block* BlockPool::take(std::size_t bytes, StreamHandle stream) {
  const std::size_t wanted = block_bytes(bytes);
  Block probe{nullptr, wanted, stream, wanted <= kSmallLimit, Block::State::free, nullptr,
              nullptr, {},     0};
  const auto found = free_.lower_bound(&probe);
  if (found == free_.end() || (*found)->is_small != probe.is_small || (*found)->stream != stream) {
    return nullptr;
  }
  Block* block = *found;
  free_.erase(found);
  if (worth_splitting(*block, wanted)) split(block, wanted);
  block->state = Block::State::in_use;
  stats_.allocated += block->bytes;
  stats_.allocated_peak = std::max(stats_.allocated_peak, stats_.allocated);
  return block;
}

void BlockPool::add_segment(Segment segment, std::size_t bytes, StreamHandle stream) {
  DT_CHECK(segment.data != nullptr && segment.bytes == segment_bytes(bytes));
  auto block = std::make_unique<Block>(Block{static_cast<char*>(segment.data),
                                             segment.bytes,
                                             stream,
                                             block_bytes(bytes) <= kSmallLimit,
                                             Block::State::free,
                                             nullptr,
                                             nullptr,
                                             {},
                                             0});
  Block* whole = block.get();
  DT_CHECK(blocks_.emplace(whole->data, std::move(block)).second);
  free_.insert(whole);
  stats_.reserved += segment.bytes;
  stats_.reserved_peak = std::max(stats_.reserved_peak, stats_.reserved);
}

Block* BlockPool::find(void* data) const {
  const auto found = blocks_.find(static_cast<const char*>(data));
  return found == blocks_.end() ? nullptr : found->second.get();
}

void BlockPool::set_waiting(Block* block) {
  DT_CHECK(block->state == Block::State::in_use);
  block->state = Block::State::waiting;
}

void BlockPool::give_back(Block* block) {
  DT_CHECK(block->state != Block::State::free && block->pending_events == 0);
  stats_.allocated -= block->bytes;
  block->state = Block::State::free;
  block->other_streams.clear();
  const auto is_free = [](const Block* other) {
    return other != nullptr && other->state == Block::State::free;
  };
  if (is_free(block->next)) {
    free_.erase(block->next);
    absorb_next(block);
  }
  if (is_free(block->previous)) {
    block = block->previous;
    free_.erase(block);  // its key changes
    absorb_next(block);
  }
  free_.insert(block);
}

std::vector<Segment> BlockPool::remove_free_segments() {
  std::vector<Segment> segments;
  for (auto i = free_.begin(); i != free_.end();) {
    Block* block = *i;
    if (block->previous != nullptr || block->next != nullptr) {
      ++i;
      continue;
    }
    segments.push_back({block->data, block->bytes});
    stats_.reserved -= block->bytes;
    i = free_.erase(i);
    blocks_.erase(block->data);
  }
  return segments;
}

std::vector<const Block*> BlockPool::blocks() const {
  std::vector<const Block*> all;
  for (const auto& [address, block] : blocks_) all.push_back(block.get());
  return all;
}

/// Cuts what is too much off the end, as a free block.
void BlockPool::split(Block* block, std::size_t bytes) {
  auto rest = std::make_unique<Block>(Block{block->data + bytes,
                                            block->bytes - bytes,
                                            block->stream,
                                            block->is_small,
                                            Block::State::free,
                                            block,
                                            block->next,
                                            {},
                                            0});
  if (block->next != nullptr) block->next->previous = rest.get();
  block->next = rest.get();
  block->bytes = bytes;
  free_.insert(rest.get());
  const char* const address = rest->data;
  DT_CHECK(blocks_.emplace(address, std::move(rest)).second);
}

void BlockPool::absorb_next(Block* block) {
  Block* gone = block->next;
  block->bytes += gone->bytes;
  block->next = gone->next;
  if (gone->next != nullptr) gone->next->previous = block;
  blocks_.erase(gone->data);
}

}  // namespace dtrun::tensors::cuda
