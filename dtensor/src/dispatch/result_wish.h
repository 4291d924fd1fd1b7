// ResultWish: how the one who asked for an operation will have its result laid. Operators that are
// chosen by what they cost on both ways (op.h) count the way there. It changes no result.
#pragma once

#include <optional>

#include "dtrun/dtensor/layout/layout.h"
#include "dtrun/dtensor/mesh/device_mesh.h"

namespace dtrun::dtensor {

struct ResultWish {
  /// Of a call in place it is certain that its result goes there; a module's wish is for the last
  /// of the calls in it.
  enum class Of { module, call_in_place };

  DeviceMesh mesh;
  Placements placements;  ///< negative dims count from the end of the result
  Of of = Of::module;

  /// Of this thread: those that stand are added to, and the last one is what counts.
  static void enter(ResultWish wish);
  static void leave();
  /// Null: none, or none that was told.
  static const ResultWish* innermost();
};

/// While it lives, this is what the thread's caller wishes. None: nothing is known.
class ResultWishScope {
 public:
  explicit ResultWishScope(std::optional<ResultWish> wish);
  ~ResultWishScope() { ResultWish::leave(); }
  ResultWishScope(const ResultWishScope&) = delete;
  ResultWishScope& operator=(const ResultWishScope&) = delete;
};

/// While it lives, every operand of this thread's calls counts as one that wants a gradient, and no
/// wish from further out is known: a function that is run twice, first without gradients, is
/// chosen alike both times.
class RunTwiceScope {
 public:
  explicit RunTwiceScope(bool is_run_twice);
  ~RunTwiceScope();
  RunTwiceScope(const RunTwiceScope&) = delete;
  RunTwiceScope& operator=(const RunTwiceScope&) = delete;

  static bool stands() { return stands_; }

 private:
  static constinit thread_local bool stands_;
  const bool before_;
  std::optional<ResultWishScope> no_wish_;
};

}  // namespace dtrun::dtensor
