#include "dtrun/dtensor/mesh/planned_mesh.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/collectives/backend.h"
#include "mesh/mesh_body.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;
using collectives::Backend;
using collectives::Work;

/// Of ranks of which there is only this one.
class PlannedBackend : public Backend {
 public:
  PlannedBackend(int rank, int size, tensors::DeviceType device_type)
      : rank_(rank), size_(size), device_type_(device_type) {}
  std::string name() const override { return "planned"; }
  tensors::DeviceType device_type() const override { return device_type_; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::optional<Error> lacks(const collectives::Fingerprint& fingerprint) const override {
    return Error(ErrorCode::kUsage, fingerprint.describe() + " between ranks that do not exist",
                 "the mesh is a planned_mesh()",
                 "call it within explain(), or on a mesh of a job's ranks");
  }
  Work start(collectives::Collective) override { return {}; }
  Work start(collectives::Message) override { return {}; }
  std::unique_ptr<Backend> split(const std::vector<int>&, int, const std::string&,
                                 collectives::Call) override {
    return nullptr;
  }
  void reject(const collectives::Fingerprint&, const Error&) override {}
  void abort(const Error&) override {}
  collectives::TransportCounters counters() const override { return {}; }
  void shutdown() override {}

 private:
  const int rank_;
  const int size_;
  const tensors::DeviceType device_type_;
};

constexpr std::int64_t kMostRanks = std::int64_t{1} << 24;

int ranks_of(const std::vector<int>& shape) {
  std::int64_t ranks = 1;
  for (const int size : shape) {
    if (size < 1 || (ranks *= size) > kMostRanks)
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("a planned mesh of shape {}", tuple_text(shape)),
                  fmt::format("an axis has at least one rank, a mesh at most {}", kMostRanks), "");
  }
  if (shape.empty() || shape.size() > Layout::kMaxAxes)
    throw Error(ErrorCode::kInvalidArgument, fmt::format("a planned mesh of {} axes", shape.size()),
                fmt::format("it has 1 to {}", Layout::kMaxAxes), "");
  return static_cast<int>(ranks);
}

}  // namespace

DeviceMesh planned_mesh(const std::vector<int>& shape, std::vector<std::string> axis_names,
                        int rank, tensors::DeviceType device_type) {
  const int ranks = ranks_of(shape);
  check_axis_names(shape, axis_names);
  if (rank < 0 || rank >= ranks)
    throw Error(ErrorCode::kInvalidArgument, fmt::format("rank {} is not in the mesh", rank),
                fmt::format("its ranks are 0 to {}", ranks - 1), "");
  collectives::GroupOptions options;
  options.rank = rank;
  options.name = "planned";
  options.global_ranks.resize(static_cast<std::size_t>(ranks));
  std::iota(options.global_ranks.begin(), options.global_ranks.end(), 0);
  auto root = std::make_shared<MeshRoot>();
  root->ranks = options.global_ranks;
  root->own_place = rank;
  root->parent = ProcessGroup::over(std::move(options),
                                    std::make_unique<PlannedBackend>(rank, ranks, device_type));
  return DeviceMesh(
      make_mesh_body(std::move(root), axes_of(shape), std::move(axis_names), device_type));
}

}  // namespace dtrun::dtensor
