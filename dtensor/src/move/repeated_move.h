// RepeatedMove: where a tensor was redistributed to before, kept with the tensor. A parameter is
// gathered in every step of a training loop: from the third time on no lock and no table is asked.
#pragma once

#include <cstdint>

#include "mesh/mesh_body.h"
#include "move/redistribute.h"

namespace dtrun::dtensor {

class RepeatedMove {
 public:
  RepeatedMove(const Spec& from, const Placements& words, const AskedMove& move)
      : from_(from), words_(words), move_(move), links_(links_of(from)) {}

  /// Null unless it is the same once more.
  const AskedMove* get(const Spec& from, const Placements& words) const {
    const bool is_same = from.body() == from_.body() && words == words_ && links_of(from) == links_;
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
