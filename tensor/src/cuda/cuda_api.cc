// The one file that calls the CUDA runtime.
#include "dtrun/tensor/cuda_api.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include "dtrun/tensor/cuda.h"

namespace dtrun::tensors::cuda {
namespace {

static_assert(static_cast<int>(Status::success) == cudaSuccess);
static_assert(static_cast<int>(Status::invalid_value) == cudaErrorInvalidValue);
static_assert(static_cast<int>(Status::out_of_memory) == cudaErrorMemoryAllocation);
static_assert(static_cast<int>(Status::insufficient_driver) == cudaErrorInsufficientDriver);
static_assert(static_cast<int>(Status::no_device) == cudaErrorNoDevice);
static_assert(static_cast<int>(Status::invalid_device) == cudaErrorInvalidDevice);
static_assert(static_cast<int>(Status::not_ready) == cudaErrorNotReady);
static_assert(static_cast<int>(Status::illegal_address) == cudaErrorIllegalAddress);

Status as_status(cudaError_t error) {
  return static_cast<Status>(error);
}

/// The runtime has no such call. Its driver is loaded: a device was current before.
Status has_context(int index, bool* has) {
  using GetState = int (*)(int device, unsigned* flags, int* active);
  static const GetState kGetState = [] {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void* call = driver == nullptr ? nullptr : dlsym(driver, "cuDevicePrimaryCtxGetState");
    return reinterpret_cast<GetState>(call);
  }();
  unsigned flags = 0;
  int active = 1;
  *has = kGetState == nullptr || kGetState(index, &flags, &active) != 0 || active != 0;
  return Status::success;
}

Status memory_info(MemoryInfo* info) {
  return as_status(cudaMemGetInfo(&info->free, &info->total));
}

Status allocate(void** data, std::size_t bytes) {
  return as_status(cudaMalloc(data, bytes));
}

Status host_allocate(void** data, std::size_t bytes) {
  // Portable: pinned for every device, not only for the current one.
  return as_status(cudaHostAlloc(data, bytes, cudaHostAllocPortable));
}

Status memcpy_async(void* target, const void* source, std::size_t bytes, StreamHandle stream) {
  return as_status(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, stream));
}

Status stream_create(StreamHandle* stream) {
  return as_status(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
}

Status launch_kernel(const KernelLaunch& launch, StreamHandle stream) {
  std::int64_t count = launch.count;
  void* arguments[] = {const_cast<void*>(launch.body), &count};
  return as_status(cudaLaunchKernel(launch.function, dim3(launch.blocks), dim3(launch.threads),
                                    arguments, 0, stream));
}

Status event_create(EventHandle* event, EventTiming timing) {
  const unsigned flags = timing == EventTiming::on ? cudaEventDefault : cudaEventDisableTiming;
  return as_status(cudaEventCreateWithFlags(event, flags));
}

constexpr CudaApi kRuntime{
    .get_device_count = [](int* count) { return as_status(cudaGetDeviceCount(count)); },
    .get_device = [](int* index) { return as_status(cudaGetDevice(index)); },
    .set_device = [](int index) { return as_status(cudaSetDevice(index)); },
    .has_context = &has_context,
    .device_synchronize = [] { return as_status(cudaDeviceSynchronize()); },
    .memory_info = &memory_info,
    .malloc = &allocate,
    .free = [](void* data) { return as_status(cudaFree(data)); },
    .host_malloc = &host_allocate,
    .host_free = [](void* data) { return as_status(cudaFreeHost(data)); },
    .memcpy_async = &memcpy_async,
    .memset_async =
        [](void* target, int byte, std::size_t bytes, StreamHandle stream) {
          return as_status(cudaMemsetAsync(target, byte, bytes, stream));
        },
    .stream_create = &stream_create,
    .stream_destroy = [](StreamHandle stream) { return as_status(cudaStreamDestroy(stream)); },
    .stream_synchronize =
        [](StreamHandle stream) { return as_status(cudaStreamSynchronize(stream)); },
    .stream_query = [](StreamHandle stream) { return as_status(cudaStreamQuery(stream)); },
    .stream_wait_event =
        [](StreamHandle stream, EventHandle event) {
          return as_status(cudaStreamWaitEvent(stream, event, 0));
        },
    .launch_host_function =
        [](StreamHandle stream, void (*function)(void*), void* argument) {
          return as_status(cudaLaunchHostFunc(stream, function, argument));
        },
    .launch_kernel = &launch_kernel,
    .event_create = &event_create,
    .event_destroy = [](EventHandle event) { return as_status(cudaEventDestroy(event)); },
    .event_record = [](EventHandle event,
                       StreamHandle stream) { return as_status(cudaEventRecord(event, stream)); },
    .event_query = [](EventHandle event) { return as_status(cudaEventQuery(event)); },
    .event_synchronize = [](EventHandle event) { return as_status(cudaEventSynchronize(event)); },
    .event_elapsed =
        [](float* milliseconds, EventHandle start, EventHandle end) {
          return as_status(cudaEventElapsedTime(milliseconds, start, end));
        },
    .get_last_error = [] { return as_status(cudaGetLastError()); },
    .error_name = [](Status status) { return cudaGetErrorName(static_cast<cudaError_t>(status)); },
    .error_text =
        [](Status status) { return cudaGetErrorString(static_cast<cudaError_t>(status)); },
};

}  // namespace

const CudaApi& runtime_api() {
  return kRuntime;
}

bool is_built() {
  return true;
}

}  // namespace dtrun::tensors::cuda
