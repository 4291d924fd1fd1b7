// Vector layouts: placements and shard orders as the vector files write them.
#pragma once

#include <string>
#include <vector>

#include "dtrun/dtensor/layout/layout.h"
#include "support/vector_file.h"

namespace dtrun::dtensor {

inline Placements placements_of(const boost::json::value& texts) {
  Placements placements;
  for (const std::string& text : test::texts_of(texts)) {
    placements.push_back(Placement::parse(text));
  }
  return placements;
}

/// @param orders null: the default order
inline ShardOrder order_of(const boost::json::value* orders) {
  ShardOrder order;
  if (orders == nullptr) return order;
  for (const auto& [dim, axes] : orders->as_object()) {
    order[std::stoi(std::string(dim))] = test::ints_of(axes);
  }
  return order;
}

}  // namespace dtrun::dtensor
