// Plans of a save and of a load: who writes which boxes, and which bytes of a chunk go where. Pure:
// functions of layouts, the same on all ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dtrun/dtensor/layout/box.h"
#include "dtrun/tensor/dtype.h"
#include "dtrun/tensor/shape.h"

namespace dtrun::dtensor::dcp {

/// What one rank has of a tensor.
struct TensorPart {
  std::string name;
  tensors::DType dtype = tensors::DType::f32;
  tensors::Shape shape;              ///< of the whole tensor
  std::optional<Box> box;            ///< none: nothing
  std::vector<int> mesh_shape = {};  ///< empty: no mesh
  std::string layout = {};
};

/// A box that a rank writes. It is part of what the rank has.
struct PlannedChunk {
  std::size_t tensor = 0;  ///< of SavePlan::tensors
  Box box;
  int writer = 0;
};

struct SavePlan {
  std::vector<TensorPart> tensors;   ///< by name; without boxes
  std::vector<PlannedChunk> chunks;  ///< by tensor, then by place; a rank has at most one of each

  std::uint64_t bytes_of(const PlannedChunk& chunk) const;
};

/// Each element is written once. A box that several ranks have is written by the one with the least
/// to write so far, the largest boxes first; one that is more than a rank's share is cut.
/// @param parts by rank @param split_above boxes of fewer bytes are not cut
/// @throws Error kDisagreement where ranks have different shapes or dtypes of a name;
/// kInvalidArgument for parts that overlap or leave holes
SavePlan plan_save(const std::vector<std::vector<TensorPart>>& parts,
                   std::uint64_t split_above = std::uint64_t{4} << 20);

/// Bytes that stand one after the other in both boxes.
struct ByteRun {
  std::uint64_t from = 0;  ///< in the source's bytes
  std::uint64_t to = 0;    ///< in the target's
  std::uint64_t bytes = 0;
};

/// The runs of what two boxes have in common, ascending in both; their elements stand row-major.
class ByteRuns {
 public:
  ByteRuns(const Box& from, const Box& to, std::size_t item_bytes);
  /// @param part of what they have in common
  ByteRuns(const Box& from, const Box& to, std::size_t item_bytes, const Box& part);

  std::optional<ByteRun> next();
  /// What is left of them between two places of the source's bytes; it takes no longer where that
  /// is far on.
  ByteRuns within(std::uint64_t begin, std::uint64_t end) const;
  /// Of all of them.
  std::uint64_t elements() const { return elements_; }

 private:
  /// The run at that place. Goes to the next.
  ByteRun take();
  void seek(std::uint64_t begin);

  Box common_;
  tensors::Shape from_strides_, to_strides_;  ///< of the outer dims, in bytes
  std::size_t outer_dims_ = 0;
  tensors::Shape at_;  ///< in the outer dims of what is common
  ByteRun first_;
  std::uint64_t elements_ = 0;
  std::uint64_t begin_ = 0, end_ = ~std::uint64_t{0};  ///< in the source's bytes
  bool is_done_ = false;
};

/// Whether the boxes lie within the shape and have each element once. @return empty, or what is
/// wrong
std::string tiling_fault(const tensors::Shape& shape, const std::vector<Box>& boxes);

}  // namespace dtrun::dtensor::dcp
