// CachingAllocator: device memory for tensors, kept for reuse, because cudaMalloc is slow and
// cudaFree waits for the whole device. A block that is given back may be handed out again on its
// own stream at once, since what runs there is in order; where other streams have used it
// (record_stream), not before events on them have passed. Thread-safe; a lock per device.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "cuda/block_pool.h"
#include "dtrun/tensor/cuda_api.h"

namespace dtrun::tensors::cuda {

class CachingAllocator {
 public:
  explicit CachingAllocator(const CudaApi& api) : api_(api) {}
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  /// @throws Error kSystem when the device has not enough memory, with who has how much of it
  void* allocate(std::size_t bytes, const Stream& stream);
  /// Never throws: it runs in destructors. Where CUDA fails (the process ends, or its context is
  /// broken) the memory stays taken.
  void release(void* data, int device_index) noexcept;
  /// `stream` uses memory of the device, too; it may be another device's.
  void record_stream(void* data, int device_index, const Stream& stream);
  void empty_cache();
  MemoryStats stats(int device_index);

 private:
  struct PendingEvent {
    EventHandle event;
    Block* block;
  };
  struct Heap {
    std::mutex mutex;
    BlockPool pool;
    /// By device and stream, the oldest first.
    std::map<std::pair<int, StreamHandle>, std::deque<PendingEvent>> pending;
  };
  enum class Patience { none, until_done };

  Heap& heap(int device_index);
  Block* allocate_locked(Heap& heap, std::size_t bytes, const Stream& stream);
  void grow(Heap& heap, std::size_t bytes, const Stream& stream);
  void settle_events(Heap& heap, Patience patience);
  void return_free_segments(Heap& heap);
  void release_locked(Heap& heap, void* data);
  void record_use(Heap& heap, Block* block, const Stream& stream);
  [[noreturn]] void refuse(const Heap& heap, std::size_t bytes, int device_index);

  const CudaApi& api_;
  std::mutex mutex_;  ///< of heaps_, not of what is in it
  std::map<int, std::unique_ptr<Heap>> heaps_;
};

}  // namespace dtrun::tensors::cuda
