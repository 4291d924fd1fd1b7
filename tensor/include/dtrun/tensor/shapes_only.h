// ShapesOnly: while one stands on a thread, operations on CPU tensors give results with their
// shapes, dtypes and memory, but leave out loops over many elements. The elements of such results
// are undefined. For the memory that a computation would take: memory that is not written is not
// taken from the machine either.
//
// Not left out: loops that are too small to be dealt to several threads; copies of integers and
// booleans and fills of them, for indices must be in range; CUDA kernels.
#pragma once

namespace dtrun::tensors {

class ShapesOnly {
 public:
  /// @param on false: within another one, numbers are computed again
  explicit ShapesOnly(bool on = true);
  ~ShapesOnly();
  ShapesOnly(const ShapesOnly&) = delete;
  ShapesOnly& operator=(const ShapesOnly&) = delete;

  static bool stands();

 private:
  const bool before_;
};

}  // namespace dtrun::tensors
