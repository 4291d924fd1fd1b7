// Shard layout: which box of the global tensor a mesh coordinate holds. Pure; no communication, no
// I/O. The rule is torch.chunk's, nested: n over p ranks gives chunks of ceil(n/p); chunk r is
// [min(n, r c), min(n, (r+1) c)). Each further axis cuts what the axes before it left. An empty
// chunk's offset is n, the dim's global size.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "dtrun/dtensor/layout/placement.h"
#include "dtrun/tensor/shape.h"

namespace dtrun::dtensor {

struct Chunk {
  std::int64_t offset = 0;
  std::int64_t size = 0;
};
/// Part `index` of n elements over `parts` (offset relative to those n; n where it is empty).
Chunk chunk_of(std::int64_t n, int parts, int index);

/// For every tensor dim the mesh axes that cut it, outermost first. Only dims that are sharded.
using ShardOrder = std::map<int, std::vector<int>>;
/// Ascending axes, as the placements stand.
ShardOrder default_shard_order(const Placements& placements);

/// A layout is placements with the order in which axes cut each dim.
struct Layout {
  Placements placements;
  ShardOrder order;
  /// "[S(0), R]", and " order {0: [1, 0]}" after it where the order is not the default one.
  std::string to_string() const;
  friend bool operator==(const Layout&, const Layout&) = default;
};
/// Normalizes dims and fills the order; dims that `order` does not name get the default one.
/// @throws Error kInvalidArgument: as many placements as axes, dims in range, partial ops on
/// different axes that do not mix (only sum with avg does), an order that does not list just the
/// axes that shard its dim
Layout make_layout(const tensors::Shape& global_shape, const std::vector<int>& mesh_shape,
                   Placements placements, ShardOrder order = {});

struct Box {
  tensors::Shape offsets;
  tensors::Shape shape;
  friend bool operator==(const Box&, const Box&) = default;
};

/// The box of the rank at `coordinate`. Replicate and Partial axes cut nothing.
/// @param layout made by make_layout for this shape and mesh
Box local_box(const tensors::Shape& global_shape, const std::vector<int>& mesh_shape,
              const std::vector<int>& coordinate, const Layout& layout);
/// @throws Error kInvalidArgument for a placement that does not fit the shape
Box local_box(const tensors::Shape& global_shape, const std::vector<int>& mesh_shape,
              const std::vector<int>& coordinate, const Placements& placements,
              const ShardOrder& order);
Box local_box(const tensors::Shape& global_shape, const std::vector<int>& mesh_shape,
              const std::vector<int>& coordinate, const Placements& placements);

}  // namespace dtrun::dtensor
