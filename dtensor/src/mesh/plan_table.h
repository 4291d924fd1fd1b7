// PlanTable: the redistribute plans between specs of a mesh that were needed before. Its owner's
// mutex guards it.
#pragma once

#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dtrun/dtensor/plan/redistribute_plan.h"
#include "mesh/number_list_hash.h"

namespace dtrun::dtensor {

class SpecBody;

class PlanTable {
 public:
  using Plan = std::shared_ptr<const std::vector<Step>>;

  /// None where it is not there.
  Plan get(const SpecBody* from, const SpecBody* to) const {
    const auto found = plans_.find(key_of(from, to));
    return found == plans_.end() ? nullptr : found->second;
  }
  void put(const SpecBody* from, const SpecBody* to, Plan plan) {
    if (plans_.size() >= kMost) clear();
    plans_.insert_or_assign(key_of(from, to), std::move(plan));
  }
  /// Specs go, and their addresses may be others'.
  void clear() { plans_.clear(); }

 private:
  static constexpr std::size_t kMost = 4096;
  static tensors::Dims key_of(const SpecBody* from, const SpecBody* to) {
    return {static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(from)),
            static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(to))};
  }

  std::unordered_map<tensors::Dims, Plan, NumberListHash> plans_;
};

}  // namespace dtrun::dtensor
