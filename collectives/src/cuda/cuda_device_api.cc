// DeviceApi over the CUDA runtime.
#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include "device_api.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/cuda.h"
#include "dtrun/tensor/storage.h"

namespace dtrun::collectives {

namespace {

void check(cudaError_t status, std::string_view action) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // or the next, unrelated call reports it again
  throw base::Error(base::ErrorCode::kSystem, fmt::format("cuda cannot {}", action),
                    fmt::format("{} ({})", cudaGetErrorString(status), cudaGetErrorName(status)),
                    "an error of an earlier kernel may show only here; CUDA_LAUNCH_BLOCKING=1 "
                    "shows it where it happens");
}

cudaStream_t handle(DeviceStream stream) {
  return reinterpret_cast<cudaStream_t>(stream);
}
cudaEvent_t handle(DeviceEvent event) {
  return reinterpret_cast<cudaEvent_t>(event);
}

class CudaDeviceApi : public DeviceApi {
 public:
  int device_count() override { return tensors::cuda::device_count(); }
  int current_device() override { return tensors::cuda::current_device(); }
  void set_current_device(int device) override { tensors::cuda::set_device(device); }
  void restore_device(int device) noexcept override { tensors::cuda::restore_device(device); }
  std::string bus_id(int device) override {
    char text[32] = {};
    check(cudaDeviceGetPCIBusId(text, sizeof(text), device),
          fmt::format("tell the bus id of device {}", device));
    return text;
  }

  DeviceStream current_stream(int device) override {
    return reinterpret_cast<DeviceStream>(tensors::cuda::current_stream(device).handle());
  }
  void run_on(int device, DeviceStream stream, std::function<void()> work) override {
    const tensors::cuda::StreamGuard guard({device, handle(stream)});
    work();
  }
  DeviceStream make_stream() override {
    int lowest = 0;
    int highest = 0;
    check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "tell the priorities of streams");
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, highest), "make a stream");
    return reinterpret_cast<DeviceStream>(stream);
  }
  void destroy_stream(DeviceStream stream) noexcept override {
    if (cudaStreamDestroy(handle(stream)) != cudaSuccess) cudaGetLastError();
  }

  DeviceEvent make_event() override {
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "make an event");
    return reinterpret_cast<DeviceEvent>(event);
  }
  void destroy_event(DeviceEvent event) noexcept override {
    if (cudaEventDestroy(handle(event)) != cudaSuccess) cudaGetLastError();
  }
  void record(DeviceEvent event, DeviceStream stream) override {
    check(cudaEventRecord(handle(event), handle(stream)), "record an event");
  }
  bool has_passed(DeviceEvent event) override {
    const cudaError_t status = cudaEventQuery(handle(event));
    if (status == cudaErrorNotReady) {
      cudaGetLastError();  // an answer, not an error
      return false;
    }
    check(status, "finish what was enqueued before an event");
    return true;
  }
  void synchronize(DeviceEvent event) override {
    check(cudaEventSynchronize(handle(event)), "wait for an event");
  }
  void make_wait(DeviceStream stream, DeviceEvent event) override {
    check(cudaStreamWaitEvent(handle(stream), handle(event), 0), "let a stream wait for an event");
  }

  void copy(void* target, const void* source, std::size_t bytes, DeviceStream stream) override {
    if (bytes == 0) return;
    check(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, handle(stream)),
          fmt::format("copy {} bytes", bytes));
  }
  std::shared_ptr<void> allocate(std::size_t bytes, int device) override {
    const auto storage = tensors::Storage::allocate(bytes, {tensors::DeviceType::cuda, device});
    return {storage->data(), [storage](void*) {}};
  }
  std::shared_ptr<void> allocate_pinned(std::size_t bytes) override {
    void* data = nullptr;
    // Portable: pinned for every device's context.
    check(cudaHostAlloc(&data, bytes == 0 ? 1 : bytes, cudaHostAllocPortable),
          fmt::format("pin {} bytes of host memory", bytes));
    return {data, [](void* pinned) {
              if (cudaFreeHost(pinned) != cudaSuccess) cudaGetLastError();
            }};
  }
};

}  // namespace

std::shared_ptr<DeviceApi> real_device_api() {
  return std::make_shared<CudaDeviceApi>();
}

}  // namespace dtrun::collectives
