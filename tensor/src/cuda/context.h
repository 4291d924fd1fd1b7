// CudaContext: what of CUDA the process shares: the table of calls, the memory, the streams, the
// BLAS handles. There is one, because a device's memory and streams belong to the process and
// tensors carry no pointer to who made them; it is never destroyed, because tensors of static
// storage duration end after it would. Tests put another, over a simulated device, in its place.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "cuda/blas_api.h"
#include "cuda/caching_allocator.h"
#include "dtrun/tensor/cuda_api.h"

namespace dtrun::tensors::cuda {

/// Streams that are made once and handed out in turn.
class StreamPool {
 public:
  explicit StreamPool(const CudaApi& api) : api_(api) {}
  Stream next(int device_index);

 private:
  struct Ring {
    std::vector<StreamHandle> streams;
    std::size_t next = 0;
  };
  const CudaApi& api_;
  std::mutex mutex_;
  std::map<int, Ring> rings_;
};

struct CudaContext {
  CudaContext(const CudaApi& cuda_api, const BlasApi& blas_api);

  const CudaApi& api;
  CachingAllocator allocator;
  StreamPool streams;
  BlasHandles blas;
  const std::uint64_t number;  ///< tells contexts apart, so that threads forget another's streams
};

CudaContext& context();

/// For tests: makes a context the process's for the guard's life. No tensor of one context may live
/// on under another.
class ContextGuard {
 public:
  explicit ContextGuard(CudaContext& replacement);
  ~ContextGuard();
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;

 private:
  CudaContext* previous_;
};

/// check() with the process's table.
void check(Status status, std::string_view action);

}  // namespace dtrun::tensors::cuda
