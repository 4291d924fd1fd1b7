// Elements that are picked, placed and ordered: values, shapes and gradients as PyTorch's, on every
// layout. Positions are i64 tensors of numbers in the whole tensor, on its mesh. A dim that is cut
// stays so: each rank picks or places what it holds.
#pragma once

#include <optional>
#include <vector>

#include "dtrun/dtensor/autograd/tensor.h"
#include "dtrun/tensor/ops/index.h"

namespace dtrun::dtensor {

using tensors::SortOrder;

/// The slices at those positions. @param index 1-D
Tensor index_select(const Tensor& a, int dim, const Tensor& index);
/// `a` with alpha * source's slices added at those positions.
Tensor index_add(const Tensor& a, int dim, const Tensor& index, const Tensor& source,
                 Scalar alpha = 1);
/// result[i][j] = a[index[i][j]][j] for dim 0.
Tensor gather(const Tensor& a, int dim, const Tensor& index);
/// `a` with source's elements at those positions; of several for one, the last, and then no
/// gradient is right. @param source at least as large as the index; the rest is not used
Tensor scatter(const Tensor& a, int dim, const Tensor& index, const Tensor& source);
Tensor scatter(const Tensor& a, int dim, const Tensor& index, Scalar value);
Tensor scatter_add(const Tensor& a, int dim, const Tensor& index, const Tensor& source);
/// a[i]: a slice of dim 0 for each position; a[i, j]: one of dims 0 and 1 for each pair, and so on.
/// Positions broadcast against each other; one may be negative: from the end.
/// A bool mask stands for as many dims as it has: for the positions where it is true, one after the
/// other. Collective where it is distributed: it is gathered.
Tensor index(const Tensor& a, const Tensor& positions);
Tensor index(const Tensor& a, const Tensors& positions);
enum class PutMode : std::uint8_t { replace, accumulate };
/// `a` with values' slices at those positions, instead of what is there, none of them twice, or
/// added to it. @param values broadcast to what index() gives
Tensor index_put(const Tensor& a, const Tensor& positions, const Tensor& values,
                 PutMode mode = PutMode::replace);
Tensor index_put(const Tensor& a, const Tensors& positions, const Tensor& values,
                 PutMode mode = PutMode::replace);
/// The elements where the mask is true, as one line; they broadcast. A distributed mask is
/// gathered.
Tensor masked_select(const Tensor& a, const Tensor& mask);
/// [n, dims]: where the n elements are that are not 0, row by row. A distributed tensor is
/// gathered.
Tensor nonzero(const Tensor& a);
/// 1 at each class of a new last dim, 0 elsewhere. i64. @param num_classes none: the greatest and 1
Tensor one_hot(const Tensor& classes, std::optional<std::int64_t> num_classes = {});
/// A row of the table for each position. @param padding_idx whose row gets no gradient
Tensor embedding(const Tensor& positions, const Tensor& table,
                 std::optional<std::int64_t> padding_idx = {});

Tensor flip(const Tensor& a, const std::vector<int>& dims);
/// Each element `shift` places on, round the end. @param dims none: all elements as one line
Tensor roll(const Tensor& a, const std::vector<std::int64_t>& shifts,
            const std::vector<int>& dims = {});
Tensor tril(const Tensor& a, std::int64_t diagonal = 0);
Tensor triu(const Tensor& a, std::int64_t diagonal = 0);
/// @param pads before and after the last dim, then the one before it, and so on; negative ones crop
Tensor pad(const Tensor& a, const std::vector<std::int64_t>& pads, Scalar value = 0);

struct Sorted {
  Tensor values;
  Tensor indices;  ///< i64, in the whole tensor
};
/// Equal elements keep their order; nan is the greatest.
Sorted sort(const Tensor& a, int dim = -1, SortOrder order = SortOrder::ascending);
Tensor argsort(const Tensor& a, int dim = -1, SortOrder order = SortOrder::ascending);
/// The k first of sort().
Sorted topk(const Tensor& a, std::int64_t k, int dim = -1, SortOrder order = SortOrder::descending);

}  // namespace dtrun::dtensor
