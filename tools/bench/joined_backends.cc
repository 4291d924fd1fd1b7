#include "bench/joined_backends.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "dtrun/base/dynamic_library.h"
#include "dtrun/base/error.h"
#include "dtrun/collectives/backend_spec.h"

namespace dtrun::bench {
namespace {

using collectives::parse_backend_spec;
using tensors::DeviceType;

/// The backend mpi learns the ranks of mpirun, one for GPUs says which GPU is this rank's, and cpu
/// shares memory as the machine says. Of others the first.
std::string backend_of_world(const std::vector<std::string>& names) {
  const auto found = [&](const auto& is_it) { return std::ranges::find_if(names, is_it); };
  const auto mpi = found([](const std::string& name) { return name == "mpi"; });
  if (mpi != names.end()) return *mpi;
  const auto cuda =
      found([](const std::string& name) { return !parse_backend_spec(name).cuda.empty(); });
  if (cuda != names.end()) return *cuda;
  return std::ranges::find(names, "cpu") == names.end() ? names.front() : "cpu";
}

collectives::ProcessGroup group_over(const collectives::ProcessGroup& world,
                                     const std::string& backend, std::size_t number) {
  if (backend == world.backend_name()) return world;
  std::vector<int> ranks(static_cast<std::size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return world.split({ranks}, "dtrun-bench-" + std::to_string(number), {.backend = backend});
}

}  // namespace

void load_plugin(const std::string& file) {
  const auto refuse = [&](const std::string& why) {
    throw base::Error(base::ErrorCode::kUsage, fmt::format("--plugin={} cannot be used", file), why,
                      "docs/backends.md shows what a plugin consists of");
  };
  // A bare name would be looked for in the loader's folders alone.
  const base::DynamicLibrary library({file.find('/') == std::string::npos ? "./" + file : file});
  if (!library.opened()) refuse(library.reason());
  RegisterBackends function = nullptr;
  if (!library.find("dtrun_register_backends", function))
    refuse("it defines no dtrun_register_backends");
  function(&collectives::register_backend);
}

JoinedBackends::JoinedBackends(const std::vector<std::string>& names, const std::string& machine)
    : worker_(runtime::init({.backend = backend_of_world(names), .machine = machine})) {
  for (const std::string& name : names) {
    groups_.push_back(group_over(worker_.world(), name, groups_.size()));
    const bool is_cpu = parse_backend_spec(name).cuda.empty();
    contenders_.push_back(std::make_unique<GroupContender>(
        groups_.back(), worker_.store(), is_cpu ? tensors::kCpu : worker_.device()));
  }
}

std::vector<Contender*> JoinedBackends::contenders() const {
  std::vector<Contender*> all;
  for (const auto& contender : contenders_) all.push_back(contender.get());
  return all;
}

std::shared_ptr<tensors::HostAllocator> JoinedBackends::shared_memory() const {
  const auto cpu = std::ranges::find_if(groups_, [](const collectives::ProcessGroup& group) {
    return parse_backend_spec(group.backend_name()).cpu == "cpu";
  });
  return (cpu == groups_.end() ? groups_.front() : *cpu).shared_memory();
}

}  // namespace dtrun::bench
