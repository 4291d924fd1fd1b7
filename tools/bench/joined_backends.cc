#include "bench/joined_backends.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "dtrun/base/dynamic_library.h"
#include "dtrun/base/error.h"
#include "dtrun/collectives/backend_spec.h"

namespace dtrun::bench {
namespace {

using collectives::parse_backend_spec;
using tensors::DeviceType;

using Specs = std::vector<collectives::BackendSpec>;

/// @throws base::Error kUsage for backends that cannot take turns
Specs specs_of(const std::vector<std::string>& names) {
  const auto refuse = [&](const std::string& why, const std::string& what_to_try) {
    throw base::Error(base::ErrorCode::kUsage,
                      fmt::format("--backend={} cannot be measured", fmt::join(names, ",")), why,
                      what_to_try);
  };
  Specs specs;
  std::set<std::string> seen;
  for (const std::string& name : names) {
    specs.push_back(parse_backend_spec(name));
    if (!seen.insert(specs.back().to_string()).second)
      refuse(fmt::format("{} is named twice", name), "name each backend once");
  }
  const auto is_for_gpus = [](const auto& spec) { return !spec.cuda.empty(); };
  if (seen.contains("mpi") && std::ranges::any_of(specs, is_for_gpus))
    refuse("mpirun starts the ranks of the backend mpi, and gives none a GPU",
           "measure the backend mpi by itself");
  return specs;
}

/// The backend mpi learns the ranks of mpirun, one for GPUs says which GPU is this rank's, and cpu
/// shares memory as the machine says. Of others the first.
std::string backend_of_world(const Specs& specs) {
  const auto found = [&](const auto& is_it) { return std::ranges::find_if(specs, is_it); };
  const auto is_for_gpus = [](const auto& spec) { return !spec.cuda.empty(); };
  for (const auto it :
       {found([](const auto& spec) { return spec.cpu == "mpi"; }), found(is_for_gpus),
        found([](const auto& spec) { return spec.cpu == "cpu"; })})
    if (it != specs.end()) return it->to_string();
  return specs.front().to_string();
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
    : worker_(runtime::init({.backend = backend_of_world(specs_of(names)), .machine = machine})) {
  for (const collectives::BackendSpec& spec : specs_of(names)) {
    groups_.push_back(group_over(worker_.world(), spec.to_string(), groups_.size()));
    const bool is_cpu = spec.cuda.empty();
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
