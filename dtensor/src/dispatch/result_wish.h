// ResultWish: how the one who asked for an operation will have its result laid. Operators that are
// chosen by what they cost on both ways (op.h) count the way there. It changes no result.
#pragma once

#include <optional>

#include "dtrun/dtensor/layout/layout.h"
#include "dtrun/dtensor/mesh/device_mesh.h"

namespace dtrun::dtensor {

struct ResultWish {
  DeviceMesh mesh;
  Placements placements;  ///< negative dims count from the end of the result

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

}  // namespace dtrun::dtensor
