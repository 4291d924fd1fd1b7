// norm and logsumexp. Both can be made of what each rank makes of its part: the norm of the parts'
// norms is the norm.
#include <cmath>
#include <limits>

#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/reduction.h"
#include "move/cause.h"
#include "ops/reduced_dims.h"

namespace dtrun::dtensor {
namespace {

struct Power {
  double power;
};
using NormContext = Context<ReducedDims, Power>;

LocalTensor norm_of(const LocalTensor& a, const ReducedDims& dims, double power) {
  const bool lowest_is_none = std::isinf(power) && reduced_count(a.shape(), dims) == 0;
  if (!lowest_is_none) return tensors::norm(a, power, dims.dims, dims.keeps());
  const double neutral = power > 0 ? 0 : std::numeric_limits<double>::infinity();
  return tensors::full(reduced_shape(a.shape(), dims), neutral, {a.dtype(), a.device()});
}

/// Shared by the elements that are it.
Tensor gradient_of_extreme(const Tensor& x, const Tensor& y, const Tensor& g,
                           const ReducedDims& a) {
  const Tensor size = abs(x);
  const Tensor chosen = logical_or(eq(size, y), logical_and(isnan(size), isnan(y)));
  return where(chosen, sign(x) * (g / sum(chosen, a.dims, true)), zeros_like(x));
}

/// sign(x) |x|^(p - 1) / norm^(p - 1), and 0 where that is no number.
Tensor gradient_of_power(const Tensor& x, const Tensor& y, const Tensor& g, double p) {
  const Tensor zero = zeros_like(x);
  if (p == 1) return g * sign(x);
  if (p == 2) return where(eq(y, 0), zero, x * (g / y));
  const Tensor scaled = sign(x) * pow(abs(x), p - 1) * (g * pow(y, 1 - p));
  return where(logical_or(eq(y, 0), eq(x, 0)), zero, scaled);
}

Tensors norm_gradient(const NormContext& c) {
  const ReducedDims& a = c.attributes();
  const double p = c.numbers().power;
  const Tensor x = without_partial(c.input(0)), g = with_dims_back(c.grad(), a);
  if (p == 0) return {zeros_like(x)};
  const Tensor y = without_partial(with_dims_back(c.output(), a));
  return {std::isinf(p) ? gradient_of_extreme(x, y, g, a) : gradient_of_power(x, y, g, p)};
}

constexpr Op<ReducedDims, Power> kNorm{
    .name = "norm",
    .meta = [](Metas in, const ReducedDims& a) -> Meta {
      require_floating("norm", in[0].dtype);
      return {reduced_shape(in[0].shape, a), in[0].dtype};
    },
    .rules = keep_reduced_whole,
    .local = [](Locals in, const ReducedDims& a, const Power& v,
                const Site&) { return norm_of(in[0], a, v.power); },
    .backward = norm_gradient,
    .saves = {1, true}};

constexpr Op<ReducedDims> kLogSumExp{
    .name = "logsumexp",
    .meta = [](Metas in, const ReducedDims& a) -> Meta {
      const DType dtype = tensors::is_floating_point(in[0].dtype) ? in[0].dtype : DType::f32;
      return {reduced_shape(in[0].shape, a), dtype};
    },
    .rules = keep_reduced_whole,
    .local = [](Locals in, const ReducedDims& a, const None&,
                const Site&) { return tensors::logsumexp(in[0], a.dims, a.keeps()); },
    .backward = [](const Context<ReducedDims, None>& c) -> Tensors {
      const ReducedDims& a = c.attributes();
      const Tensor y = without_partial(with_dims_back(c.output(), a));
      return {with_dims_back(c.grad(), a) * exp(c.input(0) - y)};
    },
    .saves = {1, true}};

Tensor norm_over_ranks(const Tensor& x, const ReducedDims& dims, double power) {
  const Cause cause("norm", Cause::Wish::implied);
  if (power == 0) return sum(ne(x, 0), dims.dims, dims.keeps()).to(x.dtype());
  const LocalTensor own = norm_of(x.local(), {dims.dims, KeepDim::yes}, power);
  return call(kNorm, joined_parts(x, dims, own), dims, Power{power});
}

}  // namespace

Tensor norm(const Tensor& a, double power, const std::vector<int>& dims, bool keepdim) {
  const ReducedDims reduced = reduced_dims("norm", a, dims, keepdim);
  if (std::isinf(power) || power < 0) require_some("norm", a.shape(), reduced);
  const Tensor x = without_partial(a);
  if (!is_cut_along(x, reduced)) return call(kNorm, x, reduced, Power{power});
  require_floating("norm", x.dtype());
  return recorded(kNorm, x, norm_over_ranks(x.detach(), reduced, power), reduced, Power{power});
}

Tensor logsumexp(const Tensor& a, const std::vector<int>& dims, bool keepdim) {
  const Cause cause("logsumexp", Cause::Wish::implied);
  const ReducedDims reduced = reduced_dims("logsumexp", a, dims, keepdim);
  const Tensor x = without_partial(a);
  if (!is_cut_along(x, reduced)) return call(kLogSumExp, x, reduced);
  const Tensor parts = joined_parts(x, reduced, tensors::logsumexp(x.local(), reduced.dims, true));
  return recorded(kLogSumExp, x, call(kLogSumExp, parts, reduced), reduced);
}

}  // namespace dtrun::dtensor
