// Memory of CUDA tensors: allocation, and copies of bytes between places.
#include "cuda/memory.h"

#include <fmt/core.h>

#include <algorithm>

#include "cuda/context.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/cuda.h"

namespace dtrun::tensors::cuda {
namespace {

using base::Error;
using base::ErrorCode;

void enqueue(void* target, const void* source, std::size_t bytes, const Stream& stream) {
  const DeviceGuard guard(stream.device_index());
  check(context().api.memcpy_async(target, source, bytes, stream.handle()), "copy");
}

/// Runs on the source's stream: the target's stream hands over before and takes over after it.
void enqueue_between_devices(void* target, int target_index, const void* source, int source_index,
                             std::size_t bytes) {
  const Stream from = current_stream(source_index);
  const Stream to = current_stream(target_index);
  from.wait(to);
  enqueue(target, source, bytes, from);
  to.wait(from);
}

/// Any device that the process uses may still be at a copy.
void release_pinned(const CudaApi& api, void* data) noexcept {
  try {
    for (int index = device_count() - 1; index >= 0; --index) {
      bool is_used = false;
      api.has_context(index, &is_used);
      if (is_used) synchronize(index);
    }
  } catch (const Error&) {  // at exit the runtime may be gone before
  }
  api.host_free(data);
}

void enqueue(const LocalTensor& target, const LocalTensor& source) {
  const Device from = source.device();
  const Device to = target.device();
  if (!from.is_cpu() && !to.is_cpu() && from != to) {
    enqueue_between_devices(target.data(), to.index, source.data(), from.index, target.bytes());
  } else {
    enqueue(target.data(), source.data(), target.bytes(),
            current_stream(to.is_cpu() ? from.index : to.index));
  }
}

}  // namespace

void* allocate(std::size_t bytes, int device_index) {
  return context().allocator.allocate(bytes, current_stream(device_index));
}

void release(void* data, int device_index) noexcept {
  context().allocator.release(data, device_index);
}

void copy_bytes(const LocalTensor& target, const LocalTensor& source) {
  if (target.bytes() == 0) return;
  enqueue(target, source);
  // Host memory is the caller's to change again, or to read, when this returns.
  if (target.device().is_cpu()) current_stream(source.device().index).synchronize();
  if (source.device().is_cpu()) current_stream(target.device().index).synchronize();
}

void record_stream(const LocalTensor& tensor, const Stream& stream) {
  if (tensor.device().is_cpu()) {
    throw Error(ErrorCode::kInvalidArgument, "record_stream of a tensor on the cpu", "",
                "it is for tensors of a CUDA device");
  }
  context().allocator.record_stream(tensor.storage()->data(), tensor.device().index, stream);
}

MemoryStats memory_stats(int device_index) {
  return context().allocator.stats(device_index);
}

void empty_cache() {
  context().allocator.empty_cache();
}

LocalTensor empty_pinned(const Shape& shape, DType dtype) {
  const std::size_t bytes = static_cast<std::size_t>(numel(shape)) * item_size(dtype);
  const CudaApi& api = context().api;
  void* data = nullptr;
  check(api, api.host_malloc(&data, std::max<std::size_t>(bytes, 1)), "allocate pinned memory");
  return LocalTensor(Storage::wrap(data, bytes, kCpu, [data, &api] { release_pinned(api, data); }),
                     dtype, shape, contiguous_strides(shape));
}

void copy_async(const LocalTensor& target, const LocalTensor& source) {
  if (target.shape() != source.shape() || target.dtype() != source.dtype() ||
      !target.is_contiguous() || !source.is_contiguous() ||
      (target.device().is_cpu() && source.device().is_cpu())) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("copy_async of {} {} on {} to {} {} on {}", dtype_name(source.dtype()),
                            shape_to_string(source.shape()), source.device().to_string(),
                            dtype_name(target.dtype()), shape_to_string(target.shape()),
                            target.device().to_string()),
                "it copies contiguous tensors of one shape and dtype from or to a device",
                "copy_()");
  }
  if (target.bytes() != 0) enqueue(target, source);
}

}  // namespace dtrun::tensors::cuda
