#include "cuda/caching_allocator.h"

#include <fmt/core.h>

#include <algorithm>

#include "dtrun/base/check.h"
#include "dtrun/base/error.h"

namespace dtrun::tensors::cuda {
namespace {

using base::Error;
using base::ErrorCode;

std::string readable(std::size_t bytes) {
  constexpr double kKiB = 1024;
  const double size = static_cast<double>(bytes);
  if (size < kKiB) return fmt::format("{} bytes", bytes);
  if (size < kKiB * kKiB) return fmt::format("{:.2f} KiB", size / kKiB);
  if (size < kKiB * kKiB * kKiB) return fmt::format("{:.2f} MiB", size / kKiB / kKiB);
  return fmt::format("{:.2f} GiB", size / kKiB / kKiB / kKiB);
}

}  // namespace

CachingAllocator::Heap& CachingAllocator::heap(int device_index) {
  const std::scoped_lock lock(mutex_);
  std::unique_ptr<Heap>& heap = heaps_[device_index];
  if (heap == nullptr) heap = std::make_unique<Heap>();
  return *heap;
}

void* CachingAllocator::allocate(std::size_t bytes, const Stream& stream) {
  const DeviceGuard guard(stream.device_index());
  // Sizes that no device has, and that the rounding would overflow with.
  constexpr std::size_t kAbsurd = std::size_t{1} << 60;
  Heap& device = heap(stream.device_index());
  const std::scoped_lock lock(device.mutex);
  if (bytes >= kAbsurd) refuse(device, bytes, stream.device_index());
  return allocate_locked(device, bytes, stream)->data;
}

Block* CachingAllocator::allocate_locked(Heap& heap, std::size_t bytes, const Stream& stream) {
  settle_events(heap, Patience::none);
  Block* block = heap.pool.take(bytes, stream.handle());
  if (block == nullptr) {
    grow(heap, bytes, stream);
    block = heap.pool.take(bytes, stream.handle());
  }
  DT_CHECK(block != nullptr);
  return block;
}

void CachingAllocator::grow(Heap& heap, std::size_t bytes, const Stream& stream) {
  Segment segment{nullptr, segment_bytes(bytes)};
  Status status = api_.malloc(&segment.data, segment.bytes);
  if (status == Status::out_of_memory) {
    api_.get_last_error();
    // What other streams and sizes keep is wanted here: wait for it, and give it back.
    settle_events(heap, Patience::until_done);
    return_free_segments(heap);
    status = api_.malloc(&segment.data, segment.bytes);
  }
  if (status == Status::out_of_memory) {
    api_.get_last_error();
    refuse(heap, bytes, stream.device_index());
  }
  check(api_, status,
        fmt::format("allocate {} on cuda:{}", readable(bytes), stream.device_index()));
  heap.pool.add_segment(segment, bytes, stream.handle());
}

void CachingAllocator::settle_events(Heap& heap, Patience patience) {
  for (auto& [stream, events] : heap.pending) {
    while (!events.empty()) {
      const PendingEvent oldest = events.front();
      const Status status = patience == Patience::none ? api_.event_query(oldest.event)
                                                       : api_.event_synchronize(oldest.event);
      if (status == Status::not_ready) {
        api_.get_last_error();  // it stays set otherwise
        break;                  // those behind it on this stream are not done either
      }
      check(api_, status, "ask whether memory is still used");
      events.pop_front();
      api_.event_destroy(oldest.event);
      if (--oldest.block->pending_events == 0) heap.pool.give_back(oldest.block);
    }
  }
}

void CachingAllocator::return_free_segments(Heap& heap) {
  // Kernels may still run on blocks that are free: only their own streams may reuse those early.
  check(api_, api_.device_synchronize(), "wait for the device");
  for (const Segment& segment : heap.pool.remove_free_segments()) {
    check(api_, api_.free(segment.data), "give memory back");
  }
}

void CachingAllocator::release(void* data, int device_index) noexcept {
  try {
    Heap& device = heap(device_index);
    const std::scoped_lock lock(device.mutex);
    release_locked(device, data);
  } catch (const Error&) {
    // The block stays taken: whether it is still used cannot be told any more.
  }
}

void CachingAllocator::release_locked(Heap& heap, void* data) {
  Block* block = heap.pool.find(data);
  DT_CHECK(block != nullptr && block->state == Block::State::in_use);
  if (block->other_streams.empty()) {
    heap.pool.give_back(block);
    return;
  }
  heap.pool.set_waiting(block);
  // Counted first: where an event fails the block waits for ever, which is safe.
  block->pending_events = block->other_streams.size();
  for (const Stream& stream : block->other_streams) record_use(heap, block, stream);
}

void CachingAllocator::record_use(Heap& heap, Block* block, const Stream& stream) {
  const DeviceGuard guard(stream.device_index());  // event and stream must be of one device
  EventHandle event = nullptr;
  check(api_, api_.event_create(&event, EventTiming::off), "make an event");
  if (const Status status = api_.event_record(event, stream.handle()); status != Status::success) {
    api_.event_destroy(event);
    check(api_, status, "record an event");
  }
  heap.pending[{stream.device_index(), stream.handle()}].push_back({event, block});
}

void CachingAllocator::record_stream(void* data, int device_index, const Stream& stream) {
  Heap& device = heap(device_index);
  const std::scoped_lock lock(device.mutex);
  Block* block = device.pool.find(data);
  // Memory that is not ours (Storage::wrap) is its owner's to keep.
  if (block == nullptr || stream == Stream(device_index, block->stream)) return;
  std::vector<Stream>& users = block->other_streams;
  if (std::find(users.begin(), users.end(), stream) == users.end()) users.push_back(stream);
}

void CachingAllocator::empty_cache() {
  std::vector<int> indices;
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& [index, heap] : heaps_) indices.push_back(index);
  }
  for (const int index : indices) {
    Heap& device = heap(index);
    const DeviceGuard guard(index);
    const std::scoped_lock lock(device.mutex);
    settle_events(device, Patience::until_done);
    return_free_segments(device);
  }
}

MemoryStats CachingAllocator::stats(int device_index) {
  Heap& device = heap(device_index);
  const std::scoped_lock lock(device.mutex);
  return device.pool.stats();
}

void CachingAllocator::refuse(const Heap& heap, std::size_t bytes, int device_index) {
  MemoryInfo info{};
  const Status status = api_.memory_info(&info);
  if (status != Status::success) api_.get_last_error();
  const MemoryStats& stats = heap.pool.stats();
  const std::string device = status != Status::success
                                 ? "the device does not say what it has left"
                                 : fmt::format("{} of the device's {} are free",
                                               readable(info.free), readable(info.total));
  throw Error(ErrorCode::kSystem,
              fmt::format("cannot allocate {} on cuda:{}", readable(bytes), device_index),
              fmt::format("{}; this process holds {}, of which {} are in tensors", device,
                          readable(stats.reserved), readable(stats.allocated)),
              "smaller tensors, shards of them on more devices, or fewer processes on this device");
}

}  // namespace dtrun::tensors::cuda
