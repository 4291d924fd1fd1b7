#include "dtensor/simulated_staging.h"

#include <gtest/gtest.h>

#include <string>

#include "dtrun/collectives/register_backend.h"
#include "dtrun/tensor/cuda.h"
#include "make_backend.h"
#include "tensor/simulated_devices.h"
#include "through_host/through_host_backend.h"

namespace dtrun::dtensor {
namespace {

using collectives::DeviceEvent;
using collectives::DeviceStream;
using tensors::cuda::CudaApi;
using tensors::cuda::EventHandle;
using tensors::cuda::Status;
using tensors::cuda::StreamHandle;

void check(Status status) {
  EXPECT_EQ(status, Status::success);
}
StreamHandle handle(DeviceStream stream) {
  return reinterpret_cast<StreamHandle>(stream);
}
EventHandle handle(DeviceEvent event) {
  return reinterpret_cast<EventHandle>(event);
}

class SimulatedDeviceApi : public collectives::DeviceApi {
 public:
  int device_count() override { return tensors::cuda::device_count(); }
  int current_device() override { return tensors::cuda::current_device(); }
  void set_current_device(int device) override { tensors::cuda::set_device(device); }
  void restore_device(int device) noexcept override { tensors::cuda::restore_device(device); }
  std::string bus_id(int device) override { return std::to_string(device); }

  DeviceStream current_stream(int device) override {
    return reinterpret_cast<DeviceStream>(tensors::cuda::current_stream(device).handle());
  }
  void run_on(int device, DeviceStream stream, std::function<void()> work) override {
    const tensors::cuda::StreamGuard guard({device, handle(stream)});
    work();
  }
  DeviceStream make_stream() override {
    StreamHandle stream = nullptr;
    check(api_.stream_create(&stream));
    return reinterpret_cast<DeviceStream>(stream);
  }
  void destroy_stream(DeviceStream stream) noexcept override {
    check(api_.stream_destroy(handle(stream)));
  }

  DeviceEvent make_event() override {
    EventHandle event = nullptr;
    check(api_.event_create(&event, tensors::cuda::EventTiming::off));
    return reinterpret_cast<DeviceEvent>(event);
  }
  void destroy_event(DeviceEvent event) noexcept override {
    check(api_.event_destroy(handle(event)));
  }
  void record(DeviceEvent event, DeviceStream stream) override {
    check(api_.event_record(handle(event), handle(stream)));
  }
  bool has_passed(DeviceEvent event) override {
    return api_.event_query(handle(event)) == Status::success;
  }
  void synchronize(DeviceEvent event) override { check(api_.event_synchronize(handle(event))); }
  void make_wait(DeviceStream stream, DeviceEvent event) override {
    check(api_.stream_wait_event(handle(stream), handle(event)));
  }

  void copy(void* target, const void* source, std::size_t bytes, DeviceStream stream) override {
    if (bytes != 0) check(api_.memcpy_async(target, source, bytes, handle(stream)));
  }
  std::shared_ptr<void> allocate(std::size_t bytes, int device) override {
    const auto storage = tensors::Storage::allocate(bytes, {tensors::DeviceType::cuda, device});
    return {storage->data(), [storage](void*) {}};
  }
  std::shared_ptr<void> allocate_pinned(std::size_t bytes) override {
    void* data = nullptr;
    check(api_.host_malloc(&data, bytes == 0 ? 1 : bytes));
    return {data, [this](void* pinned) { check(api_.host_free(pinned)); }};
  }

 private:
  const CudaApi& api_ = tensors::cuda::SimulatedDevices::api();
};

}  // namespace

void register_simulated_staging() {
  static const bool is_registered = [] {
    collectives::register_backend(
        "simulated",
        [](const collectives::GroupOptions& options) -> std::unique_ptr<collectives::Backend> {
          const auto device = std::make_shared<SimulatedDeviceApi>();
          return std::make_unique<collectives::through_host::ThroughHostBackend>(
              collectives::make_cpu_backend(options), device,
              std::make_shared<collectives::through_host::PinnedPool>(device));
        },
        tensors::DeviceType::cuda);
    return true;
  }();
  static_cast<void>(is_registered);
}

}  // namespace dtrun::dtensor
