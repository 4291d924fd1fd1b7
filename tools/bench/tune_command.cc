#include "bench/tune_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "bench/collectives_command.h"
#include "bench/group_contender.h"
#include "bench/measurement.h"
#include "bench/way_limits.h"
#include "dtrun/base/env.h"
#include "dtrun/base/error.h"
#include "dtrun/base/json.h"
#include "dtrun/dtensor/mesh/device_mesh.h"
#include "dtrun/runtime/worker.h"
#include "text/json_string.h"

namespace dtrun::bench {
namespace {

using base::Error;
using base::ErrorCode;

void check(const TuneOptions& options, int ranks) {
  std::int64_t product = 1;
  for (const int size : options.mesh) product *= size;
  if (product != ranks)
    throw Error(ErrorCode::kUsage,
                fmt::format("--mesh={} has {} ranks", fmt::join(options.mesh, ","), product),
                fmt::format("the job has {}", ranks), "sizes whose product is the number of ranks");
  if (!options.names.empty() && options.names.size() != options.mesh.size())
    throw Error(ErrorCode::kUsage, fmt::format("--names has {} names", options.names.size()),
                fmt::format("the mesh has {} axes", options.mesh.size()), "one per axis");
  if (std::ranges::find(options.names, collectives::kLimitsKey) != options.names.end())
    throw Error(ErrorCode::kUsage, fmt::format("no axis can be called {}", collectives::kLimitsKey),
                "FILE has the limits of the collectives there", "another name");
  if (options.machine_ranks > 0 && options.backend != "cpu")
    throw Error(ErrorCode::kUsage,
                fmt::format("--machine-ranks is not for the backend {}", options.backend),
                "the backend cpu alone shares memory between ranks", "leave out one of the two");
}

/// The two numbers of a link: seconds until an all_gather of one element is over, and the bytes
/// that a rank gets in a second of a large one.
std::string link_of(Contender& contender) {
  // Nothing goes along an axis of one rank.
  if (contender.size() == 1) return R"({"latency": 1e-6, "bytes_per_second": 1e10})";
  // Few calls: with more ranks than cores each costs milliseconds, and all of an axis wait for it.
  constexpr std::size_t kMuch = 1 << 20;
  Call call{.operation = Operation::all_gather, .count = 1};
  const double latency =
      measure(contender, call, {.samples = 50, .warmup = 5, .calls = 16, .check = Check::nothing})
          .p50;
  call.count = kMuch;
  const double much =
      measure(contender, call, {.samples = 20, .warmup = 3, .check = Check::nothing}).p50;
  const double bytes = static_cast<double>(kMuch) * 4 * (contender.size() - 1);
  return fmt::format("{{\"latency\": {:.4f}e-6, \"bytes_per_second\": {:.6g}}}", latency,
                     bytes / (std::max(much - latency, 1e-3) * 1e-6));
}

/// A world of the job, by a table of these limits. @param number of worlds before it
runtime::Worker join(const TuneOptions& options, int number, const collectives::WayLimits& limits) {
  runtime::InitOptions init{.backend = options.backend,
                            .generation = number,
                            .machine = machine_of_rank(options.machine_ranks)};
  // Not that of the environment, which is to be replaced.
  init.costs = collectives::CostTable::parse(
      fmt::format("{{\"{}\": {}}}", collectives::kLimitsKey, json_of(limits)), "dtrun-bench tune");
  return runtime::init(std::move(init));
}

/// What the file says of the axes of the mesh; of rank 0.
std::string links_of(const TuneOptions& options, const runtime::Worker& worker) {
  const dtensor::DeviceMesh mesh(worker.world(), options.mesh, options.names, worker.device().type);
  std::string text;
  for (int axis = 0; axis < mesh.ndim(); ++axis) {
    const std::string name = options.names.empty() ? std::to_string(axis)
                                                   : options.names[static_cast<std::size_t>(axis)];
    // All lines of an axis at once, as in a step of a plan; world rank 0 is the first of its own.
    GroupContender contender(mesh.group(axis), worker.store(), worker.device());
    text += axis > 0 ? ",\n \"" : "\"";
    launcher::append_json_string(text, name);
    text += "\": " + link_of(contender);
  }
  return text;
}

collectives::WayLimits limits_of(const TuneOptions& options, const JobPlace& place) {
  int worlds = 1;
  return measure_limits(place, [&](const collectives::WayLimits& limits,
                                   std::span<const std::size_t> sizes) {
    const runtime::Worker worker = join(options, worlds++, limits);
    GroupContender contender(worker.world(), worker.store(), worker.device());
    std::vector<double> times;
    for (const std::size_t size : sizes) {
      const Call call = call_of_size({.operation = Operation::all_reduce}, size, place.ranks);
      const Measurement measured = measure(
          contender, call,
          {.samples = 15, .warmup = 3, .calls = size <= 4096 ? 16 : 4, .check = Check::nothing});
      times.push_back(std::max(measured.p50, 1e-3));
    }
    return times;
  });
}

}  // namespace

void add_options(CLI::App& app, TuneOptions& options) {
  app.add_option("--mesh", options.mesh, "the sizes of its axes: 2,2; none: one axis of all ranks")
      ->delimiter(',')
      ->check(CLI::PositiveNumber)
      ->type_name("N,...");
  app.add_option("--names", options.names, "of the axes: dp,tp; none: their numbers")
      ->delimiter(',')
      ->type_name("NAME,...");
  app.add_option("--backend", options.backend, "cpu, gloo, mpi, nccl or staged")
      ->type_name("NAME")
      ->capture_default_str();
  app.add_option(
         "--machine-ranks", options.machine_ranks,
         "only each N ranks share memory, as if on a machine of their own; 1: all go by TCP")
      ->check(CLI::PositiveNumber.description(""))
      ->type_name("N");
  app.add_option("FILE", options.file, "what is written, for DTRUN_COST_TABLE=FILE")->required();
}

int run_tune(const TuneOptions& given) {
  if (base::get_env("TORCHELASTIC_USE_AGENT_STORE").value_or("") != "True") {
    throw base::Error(base::ErrorCode::kUsage, "tune without dtrun",
                      "its ranks form several worlds in turn, on the launcher's store",
                      "dtrun --nproc_per_node=N dtrun-bench tune FILE");
  }
  TuneOptions options = given;
  std::string links;
  JobPlace place;
  bool writes = false;
  {
    const runtime::Worker worker = join(options, 0, {});
    if (options.mesh.empty()) options.mesh = {worker.world_size()};
    check(options, worker.world_size());
    links = links_of(options, worker);
    std::vector<int> machines = worker.world().machines();
    std::ranges::sort(machines);
    const auto others = std::ranges::unique(machines);
    machines.erase(others.begin(), others.end());
    place = {worker.world_size(), static_cast<int>(machines.size())};
    writes = worker.rank() == 0;
  }
  std::string text = "{" + links;
  if (options.backend == "cpu") {
    const collectives::WayLimits limits = limits_of(options, place);
    text += fmt::format(",\n \"{}\": {}", collectives::kLimitsKey, json_of(limits));
  }
  if (writes) base::write_file_atomically(options.file, text + "}\n");
  return 0;
}

}  // namespace dtrun::bench
