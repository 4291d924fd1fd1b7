// Device: where a tensor's elements lie. A value.
#pragma once

#include <string>
#include <string_view>

namespace dtrun::tensors {

enum class DeviceType { cpu, cuda };

struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;  ///< 0 for the cpu

  /// "cpu", "cuda", "cuda:1". @throws Error kInvalidArgument
  static Device parse(std::string_view text);
  /// "cpu", "cuda:1".
  std::string to_string() const;
  bool is_cpu() const { return type == DeviceType::cpu; }
  friend bool operator==(const Device&, const Device&) = default;
};

inline constexpr Device kCpu{};

}  // namespace dtrun::tensors
