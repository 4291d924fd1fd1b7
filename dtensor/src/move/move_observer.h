// MoveObserver: while one stands, its thread asks it before it runs a redistribute plan. What
// explanations and strict mode are made of. The innermost is asked first.
#pragma once

#include "move/cross_mesh.h"
#include "move/redistribute.h"

namespace dtrun::dtensor {

/// A plan that is about to be run, for the Cause that stands.
struct Movement {
  const PlanSite& site;
  const std::vector<Step>& steps;  ///< at least one
  tensors::DType dtype;
};

/// The same to another mesh.
struct CrossMovement {
  const CrossMeshPlan& plan;
  const Spec& from;
  const Spec& to;
};

class MoveObserver {
 public:
  MoveObserver() : outer_(innermost_) { innermost_ = this; }
  virtual ~MoveObserver() { innermost_ = outer_; }
  MoveObserver(const MoveObserver&) = delete;
  MoveObserver& operator=(const MoveObserver&) = delete;

  /// @return false: it is not run, and zeros take the place of what it gives
  virtual bool on_move(const Movement& move) = 0;
  virtual bool on_crossing(const CrossMovement& move) = 0;

  /// Whether it never lets anything be run.
  virtual bool only_rehearses() const { return false; }

  static bool any() { return innermost_ != nullptr; }
  /// Asks all, from the innermost on, as long as none says no.
  static bool allow(const Movement& move);
  static bool allow(const CrossMovement& move);
  /// Of the innermost.
  static bool rehearsing() { return innermost_ != nullptr && innermost_->only_rehearses(); }

 private:
  static constinit thread_local MoveObserver* innermost_;
  MoveObserver* const outer_;
};

}  // namespace dtrun::dtensor
