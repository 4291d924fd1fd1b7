// SpareResult: the last small result of a repeated move that this thread has given up, kept whole
// for the next one to the same spec: to make a tensor and to end it takes some 20 ns, a seventh of
// a short message. When a tensor ends that keeps repeated moves, so does its thread's spare: it
// outlives that tensor on other threads only, until those make a result of another spec, or end.
#pragma once

#include <cstddef>

#include "dtrun/dtensor/autograd/tensor.h"
#include "dtrun/tensor/host_allocator.h"
#include "dtrun/tensor/host_memory.h"
#include "dtrun/tensor/own_storages.h"

namespace dtrun::dtensor {

class SpareResult {
 public:
  /// Larger elements take longer than their tensor, and may lie in a HostAllocator's memory.
  static constexpr bool serves(std::size_t bytes) {
    return base::small_blocks::kKeepsBlocks && bytes < tensors::HostAllocatorScope::kLeastBytes;
  }
  /// From now on this thread keeps one for that spec, and for no other. @return null: there is
  /// none; else the caller is its owner, and its elements are anything
  static Tensor::Body* take(const Spec& to) {
    Tensor::Body* const spare = kept_.spare;
    if (spare == nullptr || spare->spec.body() != to.body()) return begin(to);
    // Who counts what is allocated is to hear of each.
    if (tensors::HostMemoryMeter::is_counting() ||
        tensors::OwnStorages::lack(*spare->local.storage()))
      return begin(to);
    kept_.spare = nullptr;
    return spare;
  }
  /// @param result which has no owner any more @return whether the thread keeps it
  static bool keep(Tensor::Body& result) noexcept;
  /// This thread's, if it has one. It keeps none until the next take().
  static void let_go() noexcept;

 private:
  /// Without a destructor: tensors may end after those of the thread have run.
  struct Kept {
    const SpecBody* spec;  ///< null: it keeps none
    Tensor::Body* spare;   ///< null: it has none
    bool is_closed;        ///< the thread ends
  };
  struct EndOfThread {
    ~EndOfThread();
    bool stands = true;
  };

  static Tensor::Body* begin(const Spec& to);

  static constinit thread_local Kept kept_;
  static thread_local EndOfThread end_of_thread_;
};

}  // namespace dtrun::dtensor
