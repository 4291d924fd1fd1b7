// What picks, places and orders elements, and views that are composed of others, as methods of
// Tensor. What they mean stands with the functions of the same names: ops/index.h, ops/views.h,
// ops/basic.h.
#pragma once

#include <cstdint>
#include <vector>

#include "dtrun/base/call_site.h"
#include "dtrun/tensor/ops/index.h"
#include "dtrun/tensor/scalar.h"
#include "dtrun/tensor/shape.h"

namespace dtrun::dtensor {

using tensors::Scalar;
using tensors::ScatterReduce;
using tensors::Shape;
using tensors::SortOrder;

class Tensor;
using Tensors = std::vector<Tensor>;
struct Sorted;

/// Whether index_put() writes over the old elements or adds to them.
enum class PutMode : std::uint8_t { replace, accumulate };

/// Whether scatter_reduce() counts what was there before.
enum class IncludeSelf : std::uint8_t { yes, no };

class PlaceMethods {
 public:
  Tensor index_select(int dim, const Tensor& index) const;
  Tensor index_add(int dim, const Tensor& index, const Tensor& source, Scalar alpha = 1) const;
  Tensor gather(int dim, const Tensor& index) const;
  Tensor scatter(int dim, const Tensor& index, const Tensor& source) const;
  Tensor scatter(int dim, const Tensor& index, Scalar value) const;
  Tensor scatter(int dim, const Tensor& index, const Tensor& source, ScatterReduce reduce) const;
  Tensor scatter(int dim, const Tensor& index, Scalar value, ScatterReduce reduce) const;
  Tensor scatter_add(int dim, const Tensor& index, const Tensor& source) const;
  Tensor scatter_reduce(int dim, const Tensor& index, const Tensor& source, ScatterReduce reduce,
                        IncludeSelf include_self = IncludeSelf::yes) const;
  Tensor index_put(const Tensors& positions, const Tensor& values,
                   PutMode mode = PutMode::replace) const;
  Tensor masked_select(const Tensor& mask) const;
  Tensor nonzero() const;
  Tensor flip(const std::vector<int>& dims) const;
  Tensor roll(const std::vector<std::int64_t>& shifts, const std::vector<int>& dims = {}) const;
  Tensor tril(std::int64_t diagonal = 0) const;
  Tensor triu(std::int64_t diagonal = 0) const;
  Sorted sort(int dim = -1, SortOrder order = SortOrder::ascending) const;
  Tensor argsort(int dim = -1, SortOrder order = SortOrder::ascending) const;
  Sorted topk(std::int64_t k, int dim = -1, SortOrder order = SortOrder::descending) const;

  Tensor flatten(int start_dim = 0, int end_dim = -1) const;
  Tensor unflatten(int dim, const Shape& sizes) const;
  Tensor movedim(int source, int destination) const;
  Tensors unbind(int dim = 0) const;
  Tensors split(std::int64_t split_size, int dim = 0) const;
  Tensors split(const std::vector<std::int64_t>& sizes, int dim = 0) const;
  Tensors chunk(int chunks, int dim = 0) const;
  Tensor repeat(const Shape& repeats) const;
  Tensor expand_as(const Tensor& other) const;
  Tensor view_as(const Tensor& other) const;
  Tensor reshape_as(const Tensor& other) const;
  bool equal(const Tensor& other, base::CallSite site = base::CallSite::current()) const;

 private:
  const Tensor& self() const;
};

}  // namespace dtrun::dtensor
