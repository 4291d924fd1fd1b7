// View arguments: what a call of a view means for a tensor of a given shape, decided here for local
// and for distributed tensors alike. Pure. All throw Error kInvalidArgument naming shape and
// argument; a `dim` is normalized.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "dtrun/tensor/shape.h"

namespace dtrun::tensors {

/// `asked` with what the other sizes leave for a -1. @param operation "view" or "reshape"
Shape inferred_shape(std::string_view operation, const Shape& from, Shape asked);
/// `asked` with the old size for a -1; only dims of size 1 expand.
Shape expanded_shape(const Shape& from, Shape asked);

/// Elements first, first + step, ... before end.
struct SliceRange {
  std::int64_t first;
  std::int64_t end;
  std::int64_t step;

  std::int64_t size() const { return (end - first) / step + ((end - first) % step != 0 ? 1 : 0); }
};
/// Ends are clamped, and count from the end where they are negative.
SliceRange slice_range(const Shape& shape, int dim, std::int64_t start, std::int64_t end,
                       std::int64_t step);
/// Of `length` elements from `start` on.
SliceRange narrow_range(const Shape& shape, int dim, std::int64_t start, std::int64_t length);
/// Not negative.
std::int64_t index_in(const Shape& shape, int dim, std::int64_t index);

/// Pieces of `split_size`, the last one smaller.
std::vector<std::int64_t> split_sizes(std::int64_t length, std::int64_t split_size);
void check_split_sizes(const Shape& shape, int dim, const std::vector<std::int64_t>& sizes);
/// torch.chunk's rule, but always `chunks` pieces: trailing ones may be empty.
std::vector<std::int64_t> chunk_sizes(std::int64_t length, int chunks);

}  // namespace dtrun::tensors
