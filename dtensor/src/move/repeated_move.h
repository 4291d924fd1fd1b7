// RepeatedMove: a redistribution that a tensor went through again, kept with the tensor. A training
// loop gathers a parameter in every step: from the third time on this needs no lock and no table.
// A tensor keeps a few, so that moves may come in turns. No other move takes the place of one,
// because a reader may be in it; only set_data ends them. Once the mesh has other link rates, a
// move is never used again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "mesh/mesh_body.h"
#include "move/redistribute.h"

namespace dtrun::dtensor {

class RepeatedMove {
 public:
  /// @param next the move that the tensor has kept before; null: none
  RepeatedMove(const Spec& from, const Placements& words, const AskedMove& move,
               const RepeatedMove* next)
      : from_(from),
        words_(words),
        move_(with_direct_step(from, move)),
        links_(links_of(from)),
        next_(next),
        count_(next == nullptr ? 1 : next->count_ + 1) {}

  /// Of the moves from `first` on the one that is the same; null: none.
  static const AskedMove* find(const RepeatedMove* first, const Spec& from,
                               std::span<const Placement> words) {
    for (const RepeatedMove* kept = first; kept != nullptr; kept = kept->next_)
      if (kept->is_same(from, words)) return &kept->move_;
    return nullptr;
  }
  /// Whether a tensor that has kept those from `first` on keeps no more.
  static bool are_enough(const RepeatedMove* first) {
    return first != nullptr && first->count_ >= kMost;
  }
  static void free(const RepeatedMove* first) {
    while (first != nullptr) delete std::exchange(first, first->next_);
  }

 private:
  static constexpr int kMost = 4;

  static std::uint32_t links_of(const Spec& spec) {
    return spec.body()->mesh().body()->links_set.load(std::memory_order_relaxed);
  }
  bool is_same(const Spec& from, std::span<const Placement> words) const {
    return from.body() == from_.body() && std::ranges::equal(words, words_) &&
           links_of(from) == links_;
  }

  const Spec from_;
  const Placements words_;
  const AskedMove move_;
  const std::uint32_t links_;  ///< of the mesh, when the plan was made
  const RepeatedMove* const next_;
  const int count_;  ///< of this one and those after it
};

}  // namespace dtrun::dtensor
