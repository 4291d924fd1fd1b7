// Picking, placing and sorting elements of CUDA tensors. As in cuda/kernels.h: enqueued on the
// current stream, arguments checked by the caller, kUnavailable in a build without CUDA. Positions
// are i64 and have been checked: a kernel reads where they say.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dtrun/tensor/ops/index.h"
#include "dtrun/tensor/tensor.h"

namespace dtrun::tensors::cuda {

// index.cu
struct PositionRange {
  std::int64_t first, end;
  std::optional<std::int64_t> ignored = {};  ///< fits wherever it is
};
/// The number (row-major) of the first position that is in none of the range; -1 where all are.
/// Waits for the device.
std::int64_t first_outside(const LocalTensor& positions, const PositionRange& range);
/// Adds `size` to the negative ones, in place.
void count_from_start(const LocalTensor& positions, std::int64_t size);

/// target[o][i][j] = source[o][positions[i]][j] around dim; all contiguous.
void pick_slices(const LocalTensor& target, const LocalTensor& source, int dim,
                 const LocalTensor& positions);
/// gather(): `target` is of the index's shape, as is what is used of `source` but along dim.
void gather_elements(const LocalTensor& target, const LocalTensor& source, int dim,
                     const LocalTensor& index);
/// What scatter(), scatter_add() and scatter_reduce() do to `target`, in the host's order: the
/// lines of the index are sorted, and one thread goes through all that have one place. `source` is
/// of the index's shape. @param factor of sums; 1 for all others
enum class Placing : std::uint8_t { last, sum, product, greatest, least };
void place_elements(Placing placing, const LocalTensor& target, int dim, const LocalTensor& index,
                    const LocalTensor& source, Scalar factor = 1);
/// number[i] = where the i-th true is; counts[i] = how many trues there are up to i.
void place_true(const LocalTensor& numbers, const LocalTensor& mask, const LocalTensor& counts);

/// pick_classes() and place_classes() of ops/class_rows.h, into zeros. One dtype.
void pick_columns(const LocalTensor& target, const LocalTensor& source, const LocalTensor& columns,
                  std::int64_t ignored, std::int64_t first_column);
void place_columns(const LocalTensor& target, const LocalTensor& source, const LocalTensor& columns,
                   std::int64_t ignored);

/// In the opposite order along those dims that are marked.
void flip_elements(const LocalTensor& target, const LocalTensor& source,
                   const std::vector<bool>& flipped);
// sort.cu
/// sort() along dim, and as many of its first as `values` and `positions` have room for.
void sort_elements(const LocalTensor& values, const LocalTensor& positions,
                   const LocalTensor& source, int dim, SortOrder order);

}  // namespace dtrun::tensors::cuda
