// Elements that are picked and placed by number: i64 tensors of positions along one dim. Values,
// shapes and errors as PyTorch's; a position is in [0, size). On CUDA what takes positions or a
// mask waits for the device, to see whether all are; results have the host's bits.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "dtrun/tensor/tensor.h"

namespace dtrun::tensors {

/// @throws Error kInvalidArgument naming the first position that is none, unless all are in
/// [0, size)
void check_positions(std::string_view op, const LocalTensor& index, int dim, std::int64_t size);
/// Positions in [-size, size), those that count from the end as they count from the beginning.
/// @throws Error kInvalidArgument naming the first that is none, as it was given
LocalTensor positions_from_start(std::string_view op, const LocalTensor& index, int dim,
                                 std::int64_t size);

/// The slices at those positions. @param index 1-D
LocalTensor index_select(const LocalTensor& a, int dim, const LocalTensor& index);
/// A copy of `a` with alpha * source's slices added at those positions. Halves are summed in f32.
LocalTensor index_add(const LocalTensor& a, int dim, const LocalTensor& index,
                      const LocalTensor& source, Scalar alpha = 1);

/// result[i][j] = a[index[i][j]][j] for dim 0: as large as the index, which is no larger than `a`
/// in the other dims.
LocalTensor gather(const LocalTensor& a, int dim, const LocalTensor& index);
/// A copy of `a` with source's elements at those positions; of several for one, the last.
/// @param source at least as large as the index; what is beyond it is not used
LocalTensor scatter(const LocalTensor& a, int dim, const LocalTensor& index,
                    const LocalTensor& source);
LocalTensor scatter(const LocalTensor& a, int dim, const LocalTensor& index, Scalar value);
/// Added to what is there. Halves are summed in f32.
LocalTensor scatter_add(const LocalTensor& a, int dim, const LocalTensor& index,
                        const LocalTensor& source);

/// What scatter_reduce() makes of all that come to one place.
enum class ScatterReduce : std::uint8_t { sum, prod, mean, amax, amin };
/// Of what is there and source's elements at that position. Halves are computed in f32; a mean of
/// integers is rounded down, of bool it is refused.
LocalTensor scatter_reduce(const LocalTensor& a, int dim, const LocalTensor& index,
                           const LocalTensor& source, ScatterReduce reduce);

/// 1 at each position of a new last dim, 0 elsewhere. i64.
LocalTensor one_hot(const LocalTensor& positions, std::int64_t count);

/// Where the mask is true, counted as if it were one line. 1-D. @param mask bool
LocalTensor true_positions(const LocalTensor& mask);
/// The elements where the mask is true, as one line; `a` and the mask broadcast.
LocalTensor masked_select(const LocalTensor& a, const LocalTensor& mask);

/// The elements in the opposite order along those dims.
LocalTensor flip(const LocalTensor& a, const std::vector<int>& dims);
/// Each element `shift` places on, round the end. @param dims as many as shifts; none: all as one
LocalTensor roll(const LocalTensor& a, const std::vector<std::int64_t>& shifts,
                 const std::vector<int>& dims = {});

/// What is not above the diagonal (tril), or not below it (triu), of the last two dims; 0
/// elsewhere.
/// @param diagonal how far above the main one
LocalTensor tril(const LocalTensor& a, std::int64_t diagonal = 0);
LocalTensor triu(const LocalTensor& a, std::int64_t diagonal = 0);
/// @param pads before and after the last dim, then the one before it, and so on; negative ones crop
Shape padded_shape(const Shape& shape, const std::vector<std::int64_t>& pads);
LocalTensor pad(const LocalTensor& a, const std::vector<std::int64_t>& pads, Scalar value = 0);

struct Sorted {
  LocalTensor values;
  LocalTensor indices;  ///< i64
};
enum class SortOrder : std::uint8_t { ascending, descending };
/// Equal elements keep their order; nan is the greatest.
Sorted sort(const LocalTensor& a, int dim = -1, SortOrder order = SortOrder::ascending);
/// The k first of sort().
Sorted topk(const LocalTensor& a, std::int64_t k, int dim = -1,
            SortOrder order = SortOrder::descending);

}  // namespace dtrun::tensors
