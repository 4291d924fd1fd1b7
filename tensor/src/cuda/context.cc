#include "cuda/context.h"

#include <atomic>

namespace dtrun::tensors::cuda {
namespace {

std::atomic<CudaContext*> replaced{nullptr};
std::atomic<std::uint64_t> contexts_made{0};

}  // namespace

Stream StreamPool::next(int device_index) {
  constexpr std::size_t kStreams = 32;  // as many as PyTorch has
  const DeviceGuard guard(device_index);
  const std::scoped_lock lock(mutex_);
  Ring& ring = rings_[device_index];
  if (ring.streams.size() < kStreams) {
    StreamHandle stream = nullptr;
    check(api_, api_.stream_create(&stream), "make a stream");
    ring.streams.push_back(stream);
    return {device_index, stream};
  }
  return {device_index, ring.streams[ring.next++ % kStreams]};
}

CudaContext::CudaContext(const CudaApi& cuda_api, const BlasApi& blas_api)
    : api(cuda_api),
      allocator(cuda_api),
      streams(cuda_api),
      blas(cuda_api, blas_api),
      number(++contexts_made) {}

CudaContext& context() {
  if (CudaContext* other = replaced.load()) return *other;
  static CudaContext* const only = new CudaContext(runtime_api(), library_blas());
  return *only;
}

ContextGuard::ContextGuard(CudaContext& replacement) : previous_(replaced.exchange(&replacement)) {}

ContextGuard::~ContextGuard() {
  replaced.store(previous_);
}

void check(Status status, std::string_view action) {
  check(context().api, status, action);
}

}  // namespace dtrun::tensors::cuda
