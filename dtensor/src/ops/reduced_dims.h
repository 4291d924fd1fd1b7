// What the definitions of reductions have in common: the dims that go, the result's shape, the
// rules, and the way back.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "autograd/call.h"

namespace dtrun::dtensor {

enum class KeepDim { no, yes };

/// Normalized, sorted.
struct ReducedDims {
  std::vector<int> dims;
  KeepDim keep;

  bool holds(int dim) const { return std::ranges::binary_search(dims, dim); }
  bool keeps() const { return keep == KeepDim::yes; }
};
void append_key(CallKey& key, const ReducedDims& a);

/// No dims: all. @throws Error kInvalidArgument naming `op` and the dim, twice or out of range
ReducedDims reduced_dims(std::string_view op, const Tensor& a, std::vector<int> dims, bool keepdim);

Shape reduced_shape(const Shape& shape, const ReducedDims& a);
/// How many elements make one of the result.
std::int64_t reduced_count(const Shape& shape, const ReducedDims& a);
/// @throws Error kInvalidArgument where there are none
void require_some(std::string_view op, const Shape& shape, const ReducedDims& a);
void require_floating(std::string_view op, DType dtype);

/// The indices of a reduction; its rules come after.
Rules& reduction_indices(Rules& r, const Shape& shape, const ReducedDims& a);
/// All dims may be cut but those that go.
void keep_reduced_whole(Rules& r, Metas in, const ReducedDims& a);

/// A result, or its gradient, with the dims that went, as 1.
Tensor with_dims_back(const Tensor& result, const ReducedDims& a);
/// Without parts that are still to be summed: the first operand, as that of several operators.
Tensor without_partial(const Tensor& a);
/// The same of a tensor that the operator has made.
Tensor without_own_partial(const Tensor& a);
/// Whether ranks hold different stretches of a dim that goes.
bool is_cut_along(const Tensor& a, const ReducedDims& dims);
bool is_cut_along(const Tensor& a, int dim);
/// What each rank made of its stretch of the reduced dims, one after the other.
/// @param result of this rank, in each of these dims as long as that of any other; it may have more
/// dims behind those of `a`
Tensor joined_parts(const Tensor& a, const ReducedDims& dims, LocalTensor result);
/// The same of all ranks, on each of them, in one collective for each axis that cuts these dims.
LocalTensor parts_of_all(const Tensor& a, const ReducedDims& dims, LocalTensor result);

struct WholeDim {
  int dim;
};
void append_key(CallKey& key, const WholeDim& a);
/// Brings a tensor whole along the dim, in the layout that costs least there and back; in the
/// graph. @param op on whose behalf
constexpr Op<WholeDim> whole_along_for(std::string_view op) {
  return {
      .name = op,
      .meta = [](Metas in, const WholeDim&) { return in[0]; },
      .rules = [](Rules& r, Metas, const WholeDim& a) { r.all_but(a.dim).cut_all().rearranges(); },
      .local = [](Locals in, const WholeDim&, const None&, const Site&) { return in[0]; },
      .backward = [](const Context<WholeDim, None>& c) -> Tensors { return {c.grad()}; },
      .partial_gradient = PartialGradient::passed_on,
      .weighed = Weighed::there_and_back};
}

/// Of rows of which ranks hold stretches.
struct GatherCost {
  double latency = 0;   ///< seconds of a collective along the axes that cut them
  double transfer = 0;  ///< seconds that their elements take
  int parts = 1;
};
GatherCost gather_cost(const Tensor& a, const ReducedDims& dims);
/// Whether rows of which ranks hold stretches are gathered in less time than the collective of the
/// way back takes, which whole rows do not need.
bool comes_sooner_whole(const Tensor& a, const ReducedDims& dims);
/// What all ranks that hold stretches of a row know of it. @param result has the reduced dims, as 1
Tensor of_rows(const Tensor& a, const ReducedDims& dims, LocalTensor result);
/// What a rank made of each of its elements.
Tensor lying_as(const Tensor& a, LocalTensor local);
/// The same with the dim whole on every rank.
Tensor whole_along(const Tensor& a, int dim);

/// For a derivative: bool [n, n, 1, ...], whole on every rank, where `a` is. @param ones how many
Tensor diagonal_like(const Tensor& a, std::int64_t n, int ones);
/// The number, as a tensor that joins any of a's dtype.
Tensor one_of(const Tensor& a);

}  // namespace dtrun::dtensor
