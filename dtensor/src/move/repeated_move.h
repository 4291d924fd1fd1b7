// RepeatedMove: the first redistribution that a tensor went through twice in a row, kept with the
// tensor. A training loop gathers a parameter in every step: from the third time on this needs no
// lock and no table. No other move takes its place, because a reader may be in it; only set_data
// ends it. Once the mesh has other link rates, it is never used again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "mesh/mesh_body.h"
#include "move/redistribute.h"

namespace dtrun::dtensor {

class RepeatedMove {
 public:
  RepeatedMove(const Spec& from, const Placements& words, const AskedMove& move)
      : from_(from), words_(words), move_(with_direct_step(from, move)), links_(links_of(from)) {}

  /// The remembered move if it is the same one; else null.
  const AskedMove* get(const Spec& from, std::span<const Placement> words) const {
    const bool is_same = from.body() == from_.body() && std::ranges::equal(words, words_) &&
                         links_of(from) == links_;
    return is_same ? &move_ : nullptr;
  }

 private:
  static std::uint32_t links_of(const Spec& spec) {
    return spec.body()->mesh().body()->links_set.load(std::memory_order_relaxed);
  }

  const Spec from_;
  const Placements words_;
  const AskedMove move_;
  const std::uint32_t links_;  ///< of the mesh, when the plan was made
};

}  // namespace dtrun::dtensor
