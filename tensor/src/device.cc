#include "dtrun/tensor/device.h"

#include <fmt/core.h>

#include <charconv>

#include "dtrun/base/error.h"

namespace dtrun::tensors {

Device Device::parse(std::string_view text) {
  constexpr std::string_view kCuda = "cuda";
  if (text == "cpu") return kCpu;
  if (text == kCuda) return {DeviceType::cuda, 0};
  if (text.starts_with("cuda:")) {
    const std::string_view digits = text.substr(kCuda.size() + 1);
    int index = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (error == std::errc{} && end == digits.data() + digits.size() && index >= 0) {
      return {DeviceType::cuda, index};
    }
  }
  throw base::Error(base::ErrorCode::kInvalidArgument, fmt::format("'{}' is no device", text), "",
                    "cpu, cuda or cuda:N");
}

std::string Device::to_string() const {
  return is_cpu() ? "cpu" : fmt::format("cuda:{}", index);
}

}  // namespace dtrun::tensors
