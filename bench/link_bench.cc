// What the links between ranks cost, for the planner: seconds until a collective of few bytes is
// over, and the bytes that a rank gets in a second, along each axis of a mesh.
//
//     dtrun --nproc_per_node=4 link_bench --mesh 2,2 --names dp,tp FILE
//
// The file is what dtrun-plan --link-file reads.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "dtrun/base/json.h"
#include "dtrun/dtrun.h"
#include "dtrun/tensor/ops.h"

namespace {

using namespace dtrun;

struct Options {
  std::vector<int> mesh;
  std::vector<std::string> names;
  std::string file;
};

/// The median time of an all_gather of so many floats a rank, in seconds.
double seconds_of(const ProcessGroup& group, std::int64_t count, int samples) {
  const LocalTensor part = tensors::ones({count});
  const LocalTensor whole = tensors::empty({count * group.size()});
  std::vector<double> times;
  for (int sample = -samples / 5; sample < samples; ++sample) {
    const auto start = std::chrono::steady_clock::now();
    group.all_gather_into_tensor(whole, part);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (sample >= 0) times.push_back(took.count());
  }
  std::nth_element(times.begin(), times.begin() + samples / 2, times.end());
  return times[static_cast<std::size_t>(samples / 2)];
}

std::string measured(const ProcessGroup& group) {
  // Nothing goes along an axis of one rank.
  if (group.size() == 1) return R"({"latency": 1e-6, "bytes_per_second": 1e10})";
  constexpr std::int64_t kMuch = 1 << 20;
  const double latency = seconds_of(group, 1, 1000);
  const double much = seconds_of(group, kMuch, 30);
  const double bytes = static_cast<double>(kMuch) * 4 * (group.size() - 1);
  return "{\"latency\": " + std::to_string(latency * 1e6) +
         "e-6, \"bytes_per_second\": " + std::to_string(bytes / std::max(much - latency, 1e-9)) +
         "}";
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("What the links between ranks cost, written to FILE for dtrun-plan --link-file.");
  app.add_option("--mesh", options.mesh, "the sizes of its axes")->delimiter(',');
  app.add_option("--names", options.names, "of the axes")->delimiter(',');
  app.add_option("FILE", options.file)->required();
  CLI11_PARSE(app, argc, argv);
  dist::init_process_group();
  if (options.mesh.empty()) options.mesh = {dist::get_world_size()};
  const DeviceMesh mesh = dist::init_device_mesh("cpu", options.mesh, options.names);
  std::string text = "{";
  for (int axis = 0; axis < mesh.ndim(); ++axis) {
    const std::string name = options.names.empty() ? std::to_string(axis)
                                                   : options.names[static_cast<std::size_t>(axis)];
    // All lines of an axis at once, as in a step of a plan.
    text += (text.size() > 1 ? ",\n \"" : "\"") + name + "\": " + measured(mesh.group(axis));
  }
  if (dist::get_rank() == 0) base::write_file_atomically(options.file, text + "}\n");
  dist::destroy_process_group();
}
