// Box: which part of the global tensor a mesh coordinate holds. Pure; no communication. The rule is
// torch.chunk's, nested: n over p ranks gives chunks of ceil(n/p); chunk r is [min(n, r c), min(n,
// (r+1) c)). Each further axis cuts what the axes before it left. An empty chunk's offset is n, the
// dim's global size.
#pragma once

#include <cstdint>
#include <vector>

#include "dtrun/dtensor/layout/layout.h"
#include "dtrun/tensor/shape.h"

namespace dtrun::dtensor {

struct Chunk {
  std::int64_t offset = 0;
  std::int64_t size = 0;
};
/// Part `index` of n elements over `parts` (offset relative to those n; n where it is empty).
Chunk chunk_of(std::int64_t n, int parts, int index);

struct Box {
  tensors::Shape offsets;
  tensors::Shape shape;
  friend bool operator==(const Box&, const Box&) = default;
};

/// What both hold; a box of no elements where there is nothing.
Box intersection(const Box& a, const Box& b);

/// The box of the rank at `coordinate`. Replicate and Partial axes cut nothing.
/// @param layout made by make_layout for this shape and mesh
Box local_box(const tensors::Shape& global_shape, const std::vector<int>& mesh_shape,
              const std::vector<int>& coordinate, const Layout& layout);
/// @throws Error kInvalidArgument for a placement that does not fit the shape
Box local_box(const tensors::Shape& global_shape, const std::vector<int>& mesh_shape,
              const std::vector<int>& coordinate, const Placements& placements,
              const ShardOrder& order = {});

}  // namespace dtrun::dtensor
