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
#include <variant>

#include "mesh/mesh_body.h"
#include "mesh/spare_owners.h"
#include "move/kept_crossing.h"
#include "move/redistribute.h"

namespace dtrun::dtensor {

class RepeatedMove {
 public:
  /// What moves: a tensor's spec and part on this rank.
  struct Origin {
    const Spec& spec;
    const tensors::LocalTensor& local;
  };
  /// @param next the move that the tensor has kept before; null: none
  RepeatedMove(const Origin& from, const Placements& words, const AskedMove& move,
               const RepeatedMove* next)
      : RepeatedMove(from.spec, words, Move(with_direct_step(from.spec, move)), next) {}
  /// The same of a move to another mesh. @param asked which KeptCrossing::can_keep()
  RepeatedMove(const Origin& from, const Placements& words, const AskedCrossing& asked,
               const RepeatedMove* next)
      : RepeatedMove(from.spec, words, Move(std::in_place_type<KeptCrossing>, asked, from.local),
                     next) {}

  ~RepeatedMove() {
    const auto* const crossing = std::get_if<KeptCrossing>(&move_);
    SpareOwners::release(crossing != nullptr ? crossing->to() : std::get<AskedMove>(move_).to);
  }
  RepeatedMove(const RepeatedMove&) = delete;
  RepeatedMove& operator=(const RepeatedMove&) = delete;

  /// Of the moves from `first` on the one that is the same; null: none.
  static const AskedMove* find(const RepeatedMove* first, const Spec& from,
                               std::span<const Placement> words) {
    for (const RepeatedMove* kept = first; kept != nullptr; kept = kept->next_) {
      const AskedMove* const move = std::get_if<AskedMove>(&kept->move_);
      if (move != nullptr && kept->is_same(from, words)) return move;
    }
    return nullptr;
  }
  /// The same of a move to another mesh.
  static const KeptCrossing* find(const RepeatedMove* first, const Spec& from,
                                  const DeviceMesh& target, std::span<const Placement> words) {
    for (const RepeatedMove* kept = first; kept != nullptr; kept = kept->next_) {
      const KeptCrossing* const crossing = std::get_if<KeptCrossing>(&kept->move_);
      if (crossing != nullptr && crossing->leads_to(target) && kept->is_same(from, words))
        return crossing;
    }
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

  using Move = std::variant<AskedMove, KeptCrossing>;
  RepeatedMove(const Spec& from, const Placements& words, Move move, const RepeatedMove* next)
      : from_(from),
        words_(words),
        move_(std::move(move)),
        links_(links_of(from)),
        next_(next),
        count_(next == nullptr ? 1 : next->count_ + 1) {}

  static std::uint32_t links_of(const Spec& spec) {
    return spec.body()->mesh().body()->links_set.load(std::memory_order_relaxed);
  }
  bool is_same(const Spec& from, std::span<const Placement> words) const {
    return from.body() == from_.body() && std::ranges::equal(words, words_) &&
           links_of(from) == links_;
  }

  const Spec from_;
  const Placements words_;
  const Move move_;
  const std::uint32_t links_;  ///< of the mesh, when the plan was made
  const RepeatedMove* const next_;
  const int count_;  ///< of this one and those after it
};

}  // namespace dtrun::dtensor
