// Layout catalogue: all layouts that a tensor can have on a mesh, for tests of all pairs.
#pragma once

#include <algorithm>
#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/dtensor/layout/layout.h"

namespace dtrun::dtensor {

/// All placements per axis, of which each is R, a shard of one of `dims` dims or P of one of `ops`.
inline std::vector<Placements> all_placements(std::size_t dims, std::size_t axes,
                                              const std::vector<ReduceOp>& ops) {
  Placements choices = {Replicate()};
  for (std::size_t d = 0; d < dims; ++d) choices.push_back(Shard(static_cast<int>(d)));
  for (const ReduceOp op : ops) choices.push_back(Partial(op));
  std::vector<Placements> rows = {{}};
  for (std::size_t a = 0; a < axes; ++a) {
    std::vector<Placements> longer;
    for (const Placements& row : rows) {
      for (const Placement& choice : choices) {
        longer.push_back(row);
        longer.back().push_back(choice);
      }
    }
    rows = std::move(longer);
  }
  return rows;
}

/// `layout` with every order of the axes of every dim.
inline std::vector<Layout> all_orders(const Layout& layout) {
  std::vector<Layout> layouts = {layout};
  for (const auto& [dim, axes] : layout.order()) {
    std::vector<Layout> more;
    for (Layout ordered : layouts) {
      std::vector<int> order = axes;
      do {
        ordered.set_order(dim, order);
        more.push_back(ordered);
      } while (std::ranges::next_permutation(order).found);
    }
    layouts = std::move(more);
  }
  return layouts;
}

/// Every legal layout of a tensor of that shape on that mesh.
inline std::vector<Layout> all_layouts(const tensors::Shape& shape, const std::vector<int>& mesh,
                                       const std::vector<ReduceOp>& ops) {
  std::vector<Layout> layouts;
  for (const Placements& row : all_placements(shape.size(), mesh.size(), ops)) {
    try {
      const std::vector<Layout> orders = all_orders(make_layout(shape, mesh, row));
      layouts.insert(layouts.end(), orders.begin(), orders.end());
    } catch (const base::Error&) {
      continue;  // partial ops that do not mix
    }
  }
  return layouts;
}

}  // namespace dtrun::dtensor
