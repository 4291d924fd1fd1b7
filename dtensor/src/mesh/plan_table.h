// PlanTable: a cache of the redistribute plans between specs of a mesh. Guarded by its owner's
// mutex.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dtrun/dtensor/layout/cut.h"
#include "dtrun/dtensor/layout/layout.h"
#include "dtrun/dtensor/layout/placement.h"
#include "dtrun/dtensor/plan/redistribute_plan.h"
#include "mesh/number_list_hash.h"

namespace dtrun::dtensor {

struct Crossing;
struct MeshBody;
class SpecBody;

class PlanTable {
 public:
  using Plan = std::shared_ptr<const std::vector<Step>>;

  /// Null if it is not cached.
  Plan get(const SpecBody* from, const SpecBody* to) const {
    const auto found = plans_.find(key_of(from, to));
    return found == plans_.end() ? nullptr : found->second;
  }
  void put(const SpecBody* from, const SpecBody* to, Plan plan) {
    if (plans_.size() >= kMost) clear();
    plans_.insert_or_assign(key_of(from, to), std::move(plan));
  }
  /// Caches a request of a program by the placements as they were written.
  struct Asked {
    SpecBody* to;
    Plan plan;
    Placements words;  ///< so that the cuts in them keep their numbers
  };
  /// Null if it is not cached.
  const Asked* asked(const SpecBody* from, const Placements& placements) {
    Recent& recent = recent_[place_of(from, placements)];
    if (recent.from == from && recent.asked->words == placements) return recent.asked;
    const auto found = asked_.find(key_of(from, placements));
    if (found == asked_.end()) return nullptr;
    recent = {from, &found->second};
    return &found->second;
  }
  void note_asked(const SpecBody* from, const Placements& placements, Asked asked) {
    if (asked_.size() >= kMost) clear();
    asked_.insert_or_assign(key_of(from, placements), std::move(asked));
  }
  /// Null if it is not cached, or if the other mesh's link rates have changed since.
  std::shared_ptr<const Crossing> crossing(const SpecBody* from,
                                           const std::shared_ptr<MeshBody>& target,
                                           const Layout& to) const;
  void note_crossing(const SpecBody* from, const std::shared_ptr<MeshBody>& target,
                     const Layout& to, std::shared_ptr<const Crossing> crossing);
  /// Caches a request to go to another mesh by the placements as they were written. It keeps
  /// neither that mesh nor its spec alive.
  struct AskedCrossing {
    const SpecBody* from = nullptr;
    std::weak_ptr<MeshBody> target = {};
    std::uint64_t target_cleared = 0;  ///< cleared() of the target's table: `to` is valid while
                                       ///< that stays
    SpecBody* to = nullptr;
    Placements words = {};
    std::shared_ptr<const Crossing> crossing = nullptr;
  };
  /// Null if it is not cached. The caller compares target_cleared.
  const AskedCrossing* asked_crossing(const SpecBody* from, const std::shared_ptr<MeshBody>& target,
                                      const Placements& placements) const {
    const AskedCrossing& asked = asked_crossings_[place_of(from, placements) % kAskedCrossings];
    const bool is_it = asked.from == from && asked.words == placements &&
                       !asked.target.owner_before(target) && !target.owner_before(asked.target);
    return is_it ? &asked : nullptr;
  }
  void note_asked_crossing(AskedCrossing asked) {
    const std::size_t place = place_of(asked.from, asked.words) % kAskedCrossings;
    asked_crossings_[place] = std::move(asked);
  }
  /// Called before specs are freed, because their addresses may be used again, and when link rates
  /// have changed.
  void clear() {
    ++cleared_;
    plans_.clear();
    asked_.clear();
    recent_.fill({});
    crossings_.clear();
    asked_crossings_.fill({});
  }
  /// How often clear() was called.
  std::uint64_t cleared() const { return cleared_; }

 private:
  static constexpr std::size_t kMost = 4096;
  static constexpr std::size_t kRecent = 64;
  static constexpr std::size_t kAskedCrossings = 16;

  /// A direct-mapped cache in front of asked_, whose own lookup takes ten times as long.
  struct Recent {
    const SpecBody* from = nullptr;
    const Asked* asked = nullptr;
  };
  static std::size_t place_of(const SpecBody* from, const Placements& placements) {
    std::uint64_t hash = reinterpret_cast<std::uintptr_t>(from) / alignof(std::max_align_t);
    for (const Placement& placement : placements) {
      hash = hash * 31 + static_cast<std::uint64_t>(placement.kind()) * 8 +
             static_cast<std::uint64_t>(placement.dim());
    }
    return (hash ^ hash >> 6 ^ hash >> 12) % kRecent;
  }

  static tensors::Dims key_of(const SpecBody* from, const SpecBody* to) {
    return {static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(from)),
            static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(to))};
  }

  /// The mesh may have been freed and its address used again.
  struct KnownCrossing {
    std::weak_ptr<MeshBody> target;
    std::uint32_t target_links;
    std::shared_ptr<const Crossing> crossing;
  };
  static tensors::Dims key_of(const SpecBody* from, const MeshBody* target, const Layout& to) {
    tensors::Dims key = {static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(from)),
                         static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(target))};
    for (const std::int64_t word : to.packed()) key.push_back(word);
    return key;
  }

  static tensors::Dims key_of(const SpecBody* from, const Placements& placements) {
    tensors::Dims key = {static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(from))};
    for (const Placement& placement : placements) key.push_back(number_of(placement));
    return key;
  }
  /// A distinct number for each placement.
  static std::int64_t number_of(const Placement& placement) {
    const auto cut = placement.is_ragged() ? placement.cut()->number() : Cut::Number{0};
    const auto meaning = placement.is_partial() ? static_cast<std::uint32_t>(placement.reduce_op())
                                                : static_cast<std::uint32_t>(placement.dim());
    return static_cast<std::int64_t>(std::uint64_t{meaning} << 32 | std::uint64_t{cut} << 4 |
                                     static_cast<std::uint64_t>(placement.kind()));
  }

  std::unordered_map<tensors::Dims, Plan, NumberListHash> plans_;
  std::unordered_map<tensors::Dims, Asked, NumberListHash> asked_;
  std::array<Recent, kRecent> recent_;
  std::unordered_map<tensors::Dims, KnownCrossing, NumberListHash> crossings_;
  std::array<AskedCrossing, kAskedCrossings> asked_crossings_;
  std::uint64_t cleared_ = 0;
};

}  // namespace dtrun::dtensor
