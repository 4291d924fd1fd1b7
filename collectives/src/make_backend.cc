#include "make_backend.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cpu/cpu_backend.h"
#include "dtrun/collectives/available_backends.h"
#include "dtrun/collectives/backend_spec.h"
#include "dtrun/rendezvous/prefix_store.h"
#include "registered_backends.h"

namespace dtrun::collectives {

using base::Error;
using base::ErrorCode;
using tensors::DeviceType;

std::optional<Error> no_obstacle() {
  return std::nullopt;
}

namespace {

constexpr BackendKind kKinds[] = {
    {"cpu", DeviceType::cpu, no_obstacle, make_cpu_backend},
    {"gloo", DeviceType::cpu, gloo_obstacle, make_gloo_backend},
    {"mpi", DeviceType::cpu, mpi_obstacle, make_mpi_backend},
    {"nccl", DeviceType::cuda, nccl_obstacle, make_nccl_backend},
    {"staged", DeviceType::cuda, staged_obstacle, make_staged_backend},
};

std::string list_of_usable() {
  return fmt::format("the backends built in and usable here are: {}", usable_backends());
}

/// Checked before any backend is made, so that a refusal leaves no rank half in the group.
const BackendKind& usable_kind(const std::string& name) {
  const BackendKind& kind = backend_kind(name);
  if (const std::optional<Error> obstacle = kind.obstacle())
    throw Error(obstacle->code(), obstacle->summary(), obstacle->why(),
                obstacle->remedy() + (obstacle->remedy().empty() ? "" : "; ") + list_of_usable());
  return kind;
}

std::unique_ptr<Backend> make(const BackendKind& kind, GroupOptions options) {
  options.backend = kind.name;
  return kind.factory == nullptr ? kind.make(options) : make_registered(kind, options);
}

}  // namespace

std::span<const BackendKind> backend_kinds() {
  return kKinds;
}

const BackendKind& backend_kind(std::string_view name) {
  for (const BackendKind& kind : kKinds)
    if (kind.name == name) return kind;
  if (const BackendKind* registered = registered_backend(name)) return *registered;
  throw Error(ErrorCode::kInvalidArgument, fmt::format("no backend '{}'", name), "",
              list_of_usable());
}

std::string usable_backends() {
  return fmt::format("{}", fmt::join(available_backends(), ", "));
}

std::vector<std::string> available_backends() {
  std::vector<std::string> names;
  for (const BackendKind& kind : kKinds)
    if (!kind.obstacle()) names.emplace_back(kind.name);
  for (std::string& name : registered_backend_names()) names.push_back(std::move(name));
  return names;
}

bool is_backend_available(std::string_view name) {
  const std::vector<std::string> all = available_backends();
  return std::find(all.begin(), all.end(), name) != all.end();
}

std::unique_ptr<Backend> make_cpu_backend(const GroupOptions& options) {
  return cpu::CpuBackend::create(options);
}

BackendSet make_backends(const GroupOptions& options) {
  const BackendSpec spec = parse_backend_spec(options.backend);
  const BackendKind* cpu = spec.cpu.empty() ? nullptr : &usable_kind(spec.cpu);
  const BackendKind* cuda = spec.cuda.empty() ? nullptr : &usable_kind(spec.cuda);
  BackendSet set;
  if (cpu != nullptr) set.cpu = make(*cpu, options);
  if (cuda == nullptr) return set;
  GroupOptions second = options;
  // Both write the same keys.
  second.store = rendezvous::make_prefix_store("cuda", options.store);
  set.cuda = make(*cuda, std::move(second));
  return set;
}

}  // namespace dtrun::collectives
