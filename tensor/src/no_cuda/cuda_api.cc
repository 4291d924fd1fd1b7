// The CUDA runtime of a build without it: every call says so.
#include "dtrun/tensor/cuda_api.h"

#include "dtrun/tensor/cuda.h"

namespace dtrun::tensors::cuda {
namespace {

template <typename... Arguments>
Status not_built(Arguments...) {
  return Status::not_built;
}

constexpr CudaApi kNoRuntime{
    .get_device_count = &not_built,
    .get_device = &not_built,
    .set_device = &not_built,
    .has_context = &not_built,
    .device_synchronize = &not_built,
    .memory_info = &not_built,
    .malloc = &not_built,
    .free = &not_built,
    .host_malloc = &not_built,
    .host_free = &not_built,
    .memcpy_async = &not_built,
    .memset_async = &not_built,
    .stream_create = &not_built,
    .stream_destroy = &not_built,
    .stream_synchronize = &not_built,
    .stream_query = &not_built,
    .stream_wait_event = &not_built,
    .launch_host_function = &not_built,
    .launch_kernel = [](const KernelLaunch&, StreamHandle) { return Status::not_built; },
    .event_create = &not_built,
    .event_destroy = &not_built,
    .event_record = &not_built,
    .event_query = &not_built,
    .event_synchronize = &not_built,
    .event_elapsed = &not_built,
    .get_last_error = &not_built,
    .error_name = [](Status) { return "not built"; },
    .error_text = [](Status) { return "built without CUDA"; },
};

}  // namespace

const CudaApi& runtime_api() {
  return kNoRuntime;
}

bool is_built() {
  return false;
}

}  // namespace dtrun::tensors::cuda
