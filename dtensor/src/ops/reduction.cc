// sum, prod, any and all, and what is made of sum.
#include "dtrun/dtensor/ops/reduction.h"
#include "autograd/named_call.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/tensor/ops.h"
#include "ops/reduced_dims.h"

namespace dtrun::dtensor {
namespace {

DType sum_dtype_of(DType dtype) {
  return tensors::is_floating_point(dtype) ? dtype : DType::i64;
}

Meta summed(Metas in, const ReducedDims& a) {
  return {reduced_shape(in[0].shape, a), sum_dtype_of(in[0].dtype)};
}

constexpr Op<ReducedDims> kSum{
    .name = "sum",
    .meta = summed,
    .rules = [](Rules& r, Metas in,
                const ReducedDims& a) { reduction_indices(r, in[0].shape, a).cut_all().linear(0); },
    .local = [](Locals in, const ReducedDims& a, const None&, const Site&) -> LocalTensor {
      // No dims of a 0-dim tensor, where tensors::sum reads none as all.
      if (a.dims.empty()) return in[0].to(sum_dtype_of(in[0].dtype()));
      return tensors::sum(in[0], a.dims, a.keep == KeepDim::yes);
    },
    .backward = [](const Context<ReducedDims, None>& c) -> Tensors {
      return {with_dims_back(c.grad(), c.attributes()).expand(c.shape(0))};
    },
    .partial_gradient = PartialGradient::passed_on};

Tensor call_prod(const Tensor& a, const ReducedDims& dims);

/// Of x itself, with the other factors of the same product along another dim: n^2 numbers, but
/// the derivative is right whatever is 0.
Tensor product_of_others_by_table(const Tensor& x, int dim) {
  const std::int64_t n = x.size(dim);
  Shape wide = x.shape();
  wide.insert(wide.begin() + dim, n);
  const Tensor others =
      where(diagonal_like(x, n, x.dim() - dim - 1), one_of(x), x.unsqueeze(dim).expand(wide));
  return prod(others, dim + 1);
}

/// Where one factor is 0, the others' product is its derivative, and all else is 0.
Tensor product_of_others(const Tensor& x, const ReducedDims& a) {
  const Tensor is_zero = eq(x, 0), zero = zeros_like(x);
  const Tensor factors = where(is_zero, one_of(x), x);
  const Tensor product = call_prod(factors, {a.dims, KeepDim::yes});
  const Tensor zeros = sum(is_zero, a.dims, true);
  return where(is_zero, where(eq(zeros, 1), product, zero),
               where(eq(zeros, 0), product / factors, zero));
}

Tensors prod_gradient(const Context<ReducedDims, None>& c) {
  const ReducedDims& a = c.attributes();
  const Tensor x = without_partial(c.input(0)), g = with_dims_back(c.grad(), a);
  if (a.dims.empty()) return {g};
  if (!Graph::is_on()) return {g * product_of_others(x, a)};
  if (a.dims.size() == 1) return {g * product_of_others_by_table(x, a.dims[0])};
  return {g * product_of_others_by_table(x.reshape({x.numel()}), 0).reshape(x.shape())};
}

constexpr Op<ReducedDims> kProd{
    .name = "prod",
    .meta = summed,
    .rules =
        [](Rules& r, Metas in, const ReducedDims& a) {
          reduction_indices(r, in[0].shape, a).cut_all(ReduceOp::product);
        },
    .local = [](Locals in, const ReducedDims& a, const None&, const Site&) -> LocalTensor {
      if (a.dims.size() == 1) return tensors::prod(in[0], a.dims[0], a.keeps());
      const LocalTensor product = tensors::prod(in[0]);
      return a.keeps() ? product.view(Shape(a.dims.size(), 1)) : product;
    },
    .backward = prod_gradient,
    .saves = saves_input(0)};

Tensor call_prod(const Tensor& a, const ReducedDims& dims) {
  return call(kProd, a, dims);
}

Meta truth(Metas in, const ReducedDims& a) {
  return {reduced_shape(in[0].shape, a), in[0].dtype == DType::u8 ? DType::u8 : DType::boolean};
}

constexpr Op<ReducedDims> kAny{
    .name = "any",
    .meta = truth,
    .rules =
        [](Rules& r, Metas in, const ReducedDims& a) {
          reduction_indices(r, in[0].shape, a).cut_all(ReduceOp::max);
        },
    .local = [](Locals in, const ReducedDims& a, const None&,
                const Site&) { return tensors::any(in[0], a.dims, a.keeps()); }};
constexpr Op<ReducedDims> kAll{
    .name = "all",
    .meta = truth,
    .rules =
        [](Rules& r, Metas in, const ReducedDims& a) {
          reduction_indices(r, in[0].shape, a).cut_all(ReduceOp::min);
        },
    .local = [](Locals in, const ReducedDims& a, const None&,
                const Site&) { return tensors::all(in[0], a.dims, a.keeps()); }};

}  // namespace

Tensor sum(const Tensor& a) {
  return sum(a, {});
}

Tensor sum(const Tensor& a, const std::vector<int>& dims, bool keepdim) {
  return named_call("sum", {{"input", a}},
                    [&] { return call(kSum, a, reduced_dims("sum", a, dims, keepdim)); });
}

Tensor mean(const Tensor& a) {
  return mean(a, {});
}

Tensor mean(const Tensor& a, const std::vector<int>& dims, bool keepdim) {
  return named_call("mean", {{"input", a}}, [&] {
    if (!tensors::is_floating_point(a.dtype())) {
      throw base::Error(base::ErrorCode::kInvalidArgument,
                        "mean of a tensor of " + std::string(tensors::dtype_name(a.dtype())),
                        "the mean of integers need not be an integer", "to(DType::f32) first");
    }
    // A sum may be beyond what half types hold where the mean is not.
    if (a.dtype() == DType::f16 || a.dtype() == DType::bf16) {
      return mean(a.to(DType::f32), dims, keepdim).to(a.dtype());
    }
    const Tensor total = sum(a, dims, keepdim);
    const std::int64_t results = total.numel();
    const double count = results == 0 ? 1 : static_cast<double>(a.numel() / results);
    return div(total, count);
  });
}

Tensor prod(const Tensor& a) {
  return named_call("prod", {{"input", a}},
                    [&] { return call_prod(a, reduced_dims("prod", a, {}, false)); });
}
Tensor prod(const Tensor& a, int dim, bool keepdim) {
  return named_call("prod", {{"input", a}},
                    [&] { return call_prod(a, reduced_dims("prod", a, {dim}, keepdim)); });
}

// Sums and products of integers are i64, which come to the same in any narrower type.
Tensor sum(const Tensor& a, const std::vector<int>& dims, bool keepdim, DType dtype) {
  return named_call("sum", {{"input", a}},
                    [&] { return sum(a.to(dtype), dims, keepdim).to(dtype); });
}
Tensor mean(const Tensor& a, const std::vector<int>& dims, bool keepdim, DType dtype) {
  return named_call("mean", {{"input", a}}, [&] { return mean(a.to(dtype), dims, keepdim); });
}
Tensor prod(const Tensor& a, DType dtype) {
  return named_call("prod", {{"input", a}}, [&] { return prod(a.to(dtype)).to(dtype); });
}
Tensor prod(const Tensor& a, int dim, bool keepdim, DType dtype) {
  return named_call("prod", {{"input", a}},
                    [&] { return prod(a.to(dtype), dim, keepdim).to(dtype); });
}

Tensor any(const Tensor& a, const std::vector<int>& dims, bool keepdim) {
  return named_call("any", {{"input", a}},
                    [&] { return call(kAny, a, reduced_dims("any", a, dims, keepdim)); });
}
Tensor all(const Tensor& a, const std::vector<int>& dims, bool keepdim) {
  return named_call("all", {{"input", a}},
                    [&] { return call(kAll, a, reduced_dims("all", a, dims, keepdim)); });
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
