// Ragged catalogue: all layouts that a tensor can have on a mesh, ragged ones among them.
#pragma once

#include "dtensor/layout_catalogue.h"
#include "dtrun/dtensor/layout/chunk.h"
#include "dtrun/dtensor/layout/cut.h"

namespace dtrun::dtensor {

/// All on the last rank; none on the first, then as torch.chunk; one each, the rest on the second.
inline std::vector<Cut::Sizes> cuts_of(std::int64_t n, int parts) {
  const auto ranks = static_cast<std::size_t>(parts);
  Cut::Sizes last(ranks, 0), late(ranks, 0), second(ranks, 0);
  last.back() = n;
  for (int i = 1; i < parts; ++i)
    late[static_cast<std::size_t>(i)] = chunk_of(n, parts - 1, i - 1).size;
  std::int64_t left = n;
  for (std::size_t i = 0; i < ranks; ++i) {
    second[i] = std::min<std::int64_t>(left, 1);
    left -= second[i];
  }
  second[ranks > 1 ? 1 : 0] += left;
  return {last, late, second};
}

/// Every legal layout with `cuts` ways to cut a dim raggedly, and what keeps their sizes.
struct RaggedLayouts {
  std::vector<Layout> layouts;
  std::vector<Placements> held;
};
inline RaggedLayouts ragged_layouts(const tensors::Shape& shape, const std::vector<int>& mesh,
                                    std::size_t cuts, const Placements& others) {
  std::vector<Placements> rows = {{}};
  for (const int parts : mesh) {
    Placements choices = others;
    for (std::size_t dim = 0; dim < shape.size(); ++dim) {
      choices.push_back(Shard(static_cast<int>(dim)));
      for (std::size_t i = 0; i < cuts; ++i)
        choices.push_back(Shard(static_cast<int>(dim), cuts_of(shape[dim], parts)[i]));
    }
    std::vector<Placements> longer;
    for (const Placements& row : rows) {
      for (const Placement& choice : choices) {
        longer.push_back(row);
        longer.back().push_back(choice);
      }
    }
    rows = std::move(longer);
  }
  RaggedLayouts all;
  for (const Placements& row : rows) {
    for (const Layout& ordered : all_orders(Layout(row))) {
      try {
        const Layout layout = make_layout(shape, mesh, row, ordered.order());
        if (std::ranges::find(all.layouts, layout) != all.layouts.end()) continue;
        all.layouts.push_back(layout);
        all.held.push_back(row);
      } catch (const base::Error&) {
        continue;  // one that is not the outermost
      }
    }
  }
  return all;
}

}  // namespace dtrun::dtensor
