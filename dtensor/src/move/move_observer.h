// MoveObserver: while it lives, it is asked before its thread runs a redistribute plan.
// Explanations and strict mode are made with it. The innermost observer is asked first.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "dtrun/dtensor/plan/cost.h"
#include "dtrun/dtensor/plan/traffic.h"
#include "move/cross_mesh.h"
#include "move/redistribute.h"

namespace dtrun::dtensor {

/// Asked about a plan that is about to run, on behalf of the current Cause.
struct Movement {
  const PlanSite& site;
  const std::vector<Step>& steps;  ///< at least one
  tensors::DType dtype;
};

/// The same for a move to another mesh.
struct CrossMovement {
  const CrossMeshPlan& plan;
  const Spec& from;
  const Spec& to;
};

/// Elements that come to other places of a dim, which stays cut as it is: flip(), roll().
struct BlockMovement {
  const Spec& spec;
  int dim;
  std::vector<std::size_t> axes;  ///< that cut the dim
  Traffic traffic;                ///< of this rank, in bytes
  Traffic busiest;                ///< of the rank of the mesh that sends or receives most
};

/// Collectives by which a call itself brings elements onto a mesh: distribute_tensor(),
/// from_local() with run_check. They are not made while someone only rehearses.
struct EntryMovement {
  const Spec& spec;
  std::string whose;               ///< elements: "rank 0's", "each rank's"
  std::vector<std::string> steps;  ///< "scatter along dp"
  Traffic traffic;                 ///< of this rank, in bytes
  PlanCost cost;
};

class MoveObserver {
 public:
  MoveObserver() : outer_(innermost_) { innermost_ = this; }
  virtual ~MoveObserver() { innermost_ = outer_; }
  MoveObserver(const MoveObserver&) = delete;
  MoveObserver& operator=(const MoveObserver&) = delete;

  /// @return false: the plan is not run, and its result is zeros
  virtual bool on_move(const Movement& move) = 0;
  virtual bool on_crossing(const CrossMovement& move) = 0;
  virtual bool on_blocks(const BlockMovement& move) = 0;

  /// It is told only where someone rehearses.
  virtual void on_entry(const EntryMovement&) {}

  /// Whether it always returns false.
  virtual bool only_rehearses() const { return false; }

  static bool any() { return innermost_ != nullptr; }
  /// Asks all observers, the innermost first, until one returns false.
  static bool allow(const Movement& move);
  static bool allow(const CrossMovement& move);
  static bool allow(const BlockMovement& move);
  static void tell(const EntryMovement& move);
  /// Whether one of them only rehearses.
  static bool rehearsing() {
    for (const MoveObserver* observer = innermost_; observer != nullptr;
         observer = observer->outer_)
      if (observer->only_rehearses()) return true;
    return false;
  }

 private:
  static constinit thread_local MoveObserver* innermost_;
  MoveObserver* const outer_;
};

}  // namespace dtrun::dtensor
