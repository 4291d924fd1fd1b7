#include "dtrun/dtensor/mesh/planned_mesh.h"

#include <fmt/core.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>

#include "dtrun/base/error.h"
#include "mesh/mesh_body.h"
#include "mesh/planned_group.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;

constexpr std::int64_t kMostRanks = std::int64_t{1} << 24;

int ranks_of(const std::vector<int>& shape) {
  std::int64_t ranks = 1;
  for (const int size : shape) {
    if (size < 1 || (ranks *= size) > kMostRanks)
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("a planned mesh of shape {}", tuple_text(shape)),
                  fmt::format("an axis has at least one rank, a mesh at most {}", kMostRanks),
                  "sizes from 1 whose product is smaller");
  }
  if (shape.empty() || shape.size() > Layout::kMaxAxes)
    throw Error(ErrorCode::kInvalidArgument, fmt::format("a planned mesh of {} axes", shape.size()),
                fmt::format("it has 1 to {}", Layout::kMaxAxes), "one axis for what goes together");
  return static_cast<int>(ranks);
}

}  // namespace

DeviceMesh planned_mesh(const std::vector<int>& shape, std::vector<std::string> axis_names,
                        int rank, tensors::DeviceType device_type) {
  const int ranks = ranks_of(shape);
  check_axis_names(shape, axis_names);
  if (rank < 0 || rank >= ranks)
    throw Error(ErrorCode::kInvalidArgument, fmt::format("rank {} is not in the mesh", rank),
                fmt::format("its ranks are 0 to {}", ranks - 1), "one of these");
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  auto root = std::make_shared<MeshRoot>();
  root->ranks = all;
  root->own_place = rank;
  root->parent = planned_group(std::move(all), rank, "planned", device_type);
  return DeviceMesh(
      make_mesh_body(std::move(root), axes_of(shape), std::move(axis_names), device_type));
}

}  // namespace dtrun::dtensor
