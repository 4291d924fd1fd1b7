#include "cpus/cuda_devices.h"

#include <array>

#include "dtrun/base/dynamic_library.h"

namespace dtrun::launcher {

std::vector<std::string> visible_cuda_devices() {
  const base::DynamicLibrary driver({"libcuda.so.1"});
  int (*initialize)(unsigned flags) = nullptr;
  int (*get_count)(int* count) = nullptr;
  int (*get_device)(int* device, int ordinal) = nullptr;
  int (*get_address)(char* address, int size, int device) = nullptr;
  if (!driver.opened() || !driver.find("cuInit", initialize) ||
      !driver.find("cuDeviceGetCount", get_count) || !driver.find("cuDeviceGet", get_device) ||
      !driver.find("cuDeviceGetPCIBusId", get_address))
    return {};
  int count = 0;
  if (initialize(0) != 0 || get_count(&count) != 0) return {};
  std::vector<std::string> addresses;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    std::array<char, 32> address{};
    int device = 0;
    const bool is_known =
        get_device(&device, ordinal) == 0 &&
        get_address(address.data(), static_cast<int>(address.size()), device) == 0;
    addresses.emplace_back(is_known ? address.data() : "");
  }
  return addresses;
}

}  // namespace dtrun::launcher
