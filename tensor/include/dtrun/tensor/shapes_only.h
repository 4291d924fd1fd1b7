// ShapesOnly: while one stands on a thread, operations on CPU tensors give results with their
// shapes, dtypes and memory, but leave out loops over many floating-point elements. The elements of
// such results are undefined. For the memory that a computation would take: memory that is not
// written is not taken from the machine either.
//
// Not left out: loops that are too small to be dealt to several threads; results that are integers
// or booleans, for indices must be in range (those that are found in undefined numbers are in
// range, and else any); CUDA kernels.
#pragma once

#include "dtrun/tensor/dtype.h"

namespace dtrun::tensors {

class ShapesOnly {
 public:
  /// @param on false: within another one, numbers are computed again
  explicit ShapesOnly(bool on = true) : before_(is_on_) { is_on_ = on; }
  ~ShapesOnly() { is_on_ = before_; }
  ShapesOnly(const ShapesOnly&) = delete;
  ShapesOnly& operator=(const ShapesOnly&) = delete;

  static bool stands() { return is_on_; }

 private:
  // Inline: every pointwise call asks for it. Calls of 4 elements take 90 ns.
  inline static constinit thread_local bool is_on_ = false;
  const bool before_;
};

/// For an operation with such a result: on where one stands and the result is floating-point.
inline ShapesOnly shapes_only_for(DType result) {
  return ShapesOnly(ShapesOnly::stands() && is_floating_point(result));
}

}  // namespace dtrun::tensors
