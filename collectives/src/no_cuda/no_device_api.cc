// Stands in for cuda/cuda_device_api.cc where the build had no CUDA toolkit.
#include "device_api.h"
#include "dtrun/base/error.h"

namespace dtrun::collectives {

namespace {

[[noreturn]] void refuse() {
  throw base::Error(base::ErrorCode::kUnavailable, "cannot use CUDA here", "built without CUDA",
                    "configure with --preset cuda where the CUDA toolkit is, or use the cpu");
}

class NoDeviceApi : public DeviceApi {
 public:
  int device_count() override { return 0; }
  int current_device() override { refuse(); }
  void set_current_device(int) override { refuse(); }
  void restore_device(int) noexcept override {}
  std::string bus_id(int) override { refuse(); }
  DeviceStream current_stream(int) override { refuse(); }
  void run_on(int, DeviceStream, std::function<void()>) override { refuse(); }
  DeviceStream make_stream() override { refuse(); }
  void destroy_stream(DeviceStream) noexcept override {}
  DeviceEvent make_event() override { refuse(); }
  void destroy_event(DeviceEvent) noexcept override {}
  void record(DeviceEvent, DeviceStream) override { refuse(); }
  bool has_passed(DeviceEvent) override { refuse(); }
  void synchronize(DeviceEvent) override { refuse(); }
  void make_wait(DeviceStream, DeviceEvent) override { refuse(); }
  void copy(void*, const void*, std::size_t, DeviceStream) override { refuse(); }
  std::shared_ptr<void> allocate(std::size_t, int) override { refuse(); }
  std::shared_ptr<void> allocate_pinned(std::size_t) override { refuse(); }
};

}  // namespace

std::shared_ptr<DeviceApi> real_device_api() {
  return std::make_shared<NoDeviceApi>();
}

}  // namespace dtrun::collectives
