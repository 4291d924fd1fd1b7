#include "dtrun/collectives/backend_spec.h"

#include <fmt/core.h>

#include <string_view>
#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/base/split.h"
#include "make_backend.h"

namespace dtrun::collectives {

using base::Error;
using base::ErrorCode;
using tensors::DeviceType;

namespace {

[[noreturn]] void cannot_read(const std::string& text, std::string what, std::string why = {}) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("cannot read backend '{}': {}", text, what),
              std::move(why),
              fmt::format("write one name, or one per device, as cpu:cpu,cuda:nccl; the backends "
                          "built in and usable here are: {}",
                          usable_backends()));
}

const char* device_name(DeviceType type) {
  return type == DeviceType::cuda ? "cuda" : "cpu";
}

DeviceType device_of(const std::string& text, std::string_view name) {
  for (const DeviceType type : {DeviceType::cpu, DeviceType::cuda})
    if (name == device_name(type)) return type;
  cannot_read(text, fmt::format("no device '{}'", name), "the devices are cpu and cuda");
}

void name_backend(BackendSpec& spec, const std::string& text, std::string_view part) {
  const std::size_t colon = part.find(':');
  if (colon == std::string_view::npos) cannot_read(text, fmt::format("'{}' names no device", part));
  const DeviceType device = device_of(text, part.substr(0, colon));
  const BackendKind& kind = backend_kind(part.substr(colon + 1));
  if (kind.device != device)
    cannot_read(text, fmt::format("backend '{}' takes {} tensors only", kind.name,
                                  device_name(kind.device)));
  std::string& name = device == DeviceType::cuda ? spec.cuda : spec.cpu;
  if (!name.empty()) cannot_read(text, fmt::format("device {} stands twice", device_name(device)));
  name = kind.name;
}

}  // namespace

std::string BackendSpec::to_string() const {
  if (cuda.empty()) return cpu;
  if (cpu.empty()) return cuda;
  return fmt::format("cpu:{},cuda:{}", cpu, cuda);
}

BackendSpec parse_backend_spec(const std::string& text) {
  BackendSpec spec;
  if (text.find_first_of(":,") == std::string::npos) {
    const BackendKind& kind = backend_kind(text);
    (kind.device == DeviceType::cuda ? spec.cuda : spec.cpu) = kind.name;
    return spec;
  }
  for (const std::string_view part : base::split(text, ',')) name_backend(spec, text, part);
  return spec;
}

}  // namespace dtrun::collectives
