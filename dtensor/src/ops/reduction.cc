// sum and what is made of it.
#include <algorithm>

#include "dispatch/call.h"
#include "dtrun/dtensor/ops.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::dtensor {
namespace {

enum class KeepDim { no, yes };

/// Normalized, sorted.
struct ReducedDims {
  std::vector<int> dims;
  KeepDim keep;

  bool holds(int dim) const { return std::ranges::binary_search(dims, dim); }
};
void append_key(CallKey& key, const ReducedDims& a) {
  for (const int dim : a.dims) key.push_back(dim);
  key.push_back(static_cast<std::int64_t>(a.keep));
}

DType sum_dtype_of(DType dtype) {
  return tensors::is_floating_point(dtype) ? dtype : DType::i64;
}

Meta reduced(Metas in, const ReducedDims& a) {
  Meta meta{{}, sum_dtype_of(in[0].dtype)};
  for (std::size_t d = 0; d < in[0].shape.size(); ++d) {
    const bool goes = a.holds(static_cast<int>(d));
    if (!goes || a.keep == KeepDim::yes) meta.shape.push_back(goes ? 1 : in[0].shape[d]);
  }
  return meta;
}

void reduction_rules(Rules& r, Metas in, const ReducedDims& a) {
  Rules::Indices input;
  Rules::Indices output;
  for (int d = 0; d < static_cast<int>(in[0].shape.size()); ++d) {
    input.push_back(d);
    if (!a.holds(d)) output.push_back(d);
    if (a.holds(d) && a.keep == KeepDim::yes) output.push_back(sharding::kBroadcast);
  }
  r.indices({std::move(input)}, std::move(output)).cut_all().linear(0);
}

/// The gradient with the dims that went, as 1.
Tensor with_dims_back(const Tensor& gradient, const ReducedDims& a) {
  Tensor whole = gradient;
  if (a.keep == KeepDim::no) {
    for (const int dim : a.dims) whole = whole.unsqueeze(dim);
  }
  return whole;
}

constexpr Op<ReducedDims> kSum{
    .name = "sum",
    .meta = reduced,
    .rules = reduction_rules,
    .local = [](Locals in, const ReducedDims& a, const None&, const Site&) -> LocalTensor {
      // No dims of a 0-dim tensor, where tensors::sum reads none as all.
      if (a.dims.empty()) return in[0].to(sum_dtype_of(in[0].dtype()));
      return tensors::sum(in[0], a.dims, a.keep == KeepDim::yes);
    },
    .backward = [](const Context<ReducedDims, None>& c) -> Tensors {
      return {with_dims_back(c.grad(), c.attributes()).expand(c.shape(0))};
    },
    .partial_gradient = PartialGradient::passed_on};

ReducedDims normalized(const Tensor& a, std::vector<int> dims, bool keepdim) {
  const std::size_t rank = a.shape().size();
  if (dims.empty()) {
    for (std::size_t d = 0; d < rank; ++d) dims.push_back(static_cast<int>(d));
  }
  if (rank == 0) {
    for (const int dim : dims) {
      if (dim != 0 && dim != -1) tensors::normalize_dim(dim, rank);
    }
    dims.clear();
  }
  for (int& dim : dims) dim = tensors::normalize_dim(dim, rank);
  std::ranges::sort(dims);
  const auto twice = std::ranges::adjacent_find(dims);
  if (twice != dims.end()) {
    throw base::Error(base::ErrorCode::kInvalidArgument,
                      "sum was given dim " + std::to_string(*twice) + " twice");
  }
  return {std::move(dims), keepdim ? KeepDim::yes : KeepDim::no};
}

}  // namespace

Tensor sum(const Tensor& a) {
  return sum(a, {});
}

Tensor sum(const Tensor& a, const std::vector<int>& dims, bool keepdim) {
  return call(kSum, a, normalized(a, dims, keepdim));
}

Tensor mean(const Tensor& a) {
  return mean(a, {});
}

Tensor mean(const Tensor& a, const std::vector<int>& dims, bool keepdim) {
  if (!tensors::is_floating_point(a.dtype())) {
    throw base::Error(base::ErrorCode::kInvalidArgument,
                      "mean of a tensor of " + std::string(tensors::dtype_name(a.dtype())),
                      "the mean of integers is none", "to(DType::f32) first");
  }
  // A sum may be beyond what half types hold where the mean is not.
  if (a.dtype() == DType::f16 || a.dtype() == DType::bf16) {
    return mean(a.to(DType::f32), dims, keepdim).to(a.dtype());
  }
  const Tensor total = sum(a, dims, keepdim);
  const std::int64_t results = total.numel();
  const double count = results == 0 ? 1 : static_cast<double>(a.numel() / results);
  return div(total, count);
}

Tensor sum_to(const Tensor& a, const Shape& shape) {
  if (a.shape() == shape) return a;
  const std::size_t added = a.shape().size() - shape.size();
  std::vector<int> leading;
  for (std::size_t d = 0; d < added; ++d) leading.push_back(static_cast<int>(d));
  const Tensor same_rank = leading.empty() ? a : sum(a, leading);
  std::vector<int> stretched;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1 && same_rank.shape()[d] != 1) stretched.push_back(static_cast<int>(d));
  }
  return stretched.empty() ? same_rank : sum(same_rank, stretched, true);
}

}  // namespace dtrun::dtensor
