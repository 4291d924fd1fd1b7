// Gather, scatter, index and sort, with PyTorch's values, shapes and gradients, on every layout.
// Indices are i64 tensors on the same mesh that count in the whole tensor. A sharded dim stays
// sharded: each rank reads or writes the elements that it holds.
#pragma once

#include <optional>
#include <vector>

#include "dtrun/dtensor/autograd/tensor.h"
#include "dtrun/tensor/ops/index.h"

namespace dtrun::dtensor {

using tensors::SortOrder;

/// The slices at those positions. @param index 1-D
Tensor index_select(const Tensor& a, int dim, const Tensor& index);
/// `a` plus alpha times source's slices at those positions.
Tensor index_add(const Tensor& a, int dim, const Tensor& index, const Tensor& source,
                 Scalar alpha = 1);
/// result[i][j] = a[index[i][j]][j] for dim 0.
Tensor gather(const Tensor& a, int dim, const Tensor& index);
/// `a` with source's elements at those positions. If an index occurs twice, the last one is taken
/// and the gradient is undefined. @param source at least as large as the index; the rest is unused
Tensor scatter(const Tensor& a, int dim, const Tensor& index, const Tensor& source);
Tensor scatter(const Tensor& a, int dim, const Tensor& index, Scalar value);
Tensor scatter_add(const Tensor& a, int dim, const Tensor& index, const Tensor& source);
/// Folds into `a` what comes to each position: its sum, product, mean (of integers rounded down),
/// greatest or least. What shares an extreme shares its gradient. A second gradient of products is
/// refused where a source is 0. @param include_self no: what is in `a` there does not count
Tensor scatter_reduce(const Tensor& a, int dim, const Tensor& index, const Tensor& source,
                      ScatterReduce reduce, IncludeSelf include_self = IncludeSelf::yes);
/// torch.scatter's reduce: "add" is sum, "multiply" is prod. Self is included. These have a
/// gradient.
Tensor scatter(const Tensor& a, int dim, const Tensor& index, const Tensor& source,
               ScatterReduce reduce);
Tensor scatter(const Tensor& a, int dim, const Tensor& index, Scalar value, ScatterReduce reduce);
/// a[i]: a slice of dim 0 for each position; a[i, j]: one of dims 0 and 1 for each pair, and so on.
/// Positions broadcast against each other; one may be negative: from the end.
/// A bool mask stands for as many dims as it has: for the positions where it is true, one after the
/// other. Collective where it is distributed: it is gathered.
Tensor index(const Tensor& a, const Tensor& positions);
Tensor index(const Tensor& a, const Tensors& positions);
/// `a` with values' slices at those positions, in place of the old ones (no position twice) or
/// added to them. @param values broadcast to the shape of index()
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
/// i64: 1 at the class in a new last dim, 0 elsewhere. @param num_classes default: the greatest
/// class + 1
Tensor one_hot(const Tensor& classes, std::optional<std::int64_t> num_classes = {});
/// A row of the table for each index. @param padding_idx the row that gets no gradient
Tensor embedding(const Tensor& positions, const Tensor& table,
                 std::optional<std::int64_t> padding_idx = {});

Tensor flip(const Tensor& a, const std::vector<int>& dims);
/// Shifts the elements; those beyond the end come in at the beginning. @param dims none: all
/// elements in row-major order
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
/// The first k of sort().
Sorted topk(const Tensor& a, std::int64_t k, int dim = -1, SortOrder order = SortOrder::descending);

}  // namespace dtrun::dtensor
