// norm and logsumexp. Both can be made of what each rank makes of its part: the norm of the parts'
// norms is the norm. Some norms are sums or extremes, and stay Partial.
#include <cmath>
#include <limits>

#include "autograd/legal_layouts_of.h"
#include "autograd/named_call.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/reduction.h"
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
  if (p == 2) return where(eq(y, 0), zero, x * (g / y));
  const Tensor scaled = sign(x) * pow(abs(x), p - 1) * (g * pow(y, 1 - p));
  return where(logical_or(eq(y, 0), eq(x, 0)), zero, scaled);
}

Tensors norm_gradient(const NormContext& c) {
  const ReducedDims& a = c.attributes();
  const double p = c.numbers().power;
  const Tensor x = without_partial(c.input(0)), g = with_dims_back(c.grad(), a);
  if (p == 0) return {zeros_like(x)};
  if (p == 1) return {g * sign(x)};
  const Tensor y = without_partial(with_dims_back(c.output(), a));
  return {std::isinf(p) ? gradient_of_extreme(x, y, g, a) : gradient_of_power(x, y, g, p)};
}

constexpr Op<ReducedDims, Power> norm_by(void (*rules)(Rules&, Metas, const ReducedDims&)) {
  return {.name = "norm",
          .meta = [](Metas in, const ReducedDims& a) -> Meta {
            require_floating("norm", in[0].dtype);
            return {reduced_shape(in[0].shape, a), in[0].dtype};
          },
          .rules = rules,
          .local = [](Locals in, const ReducedDims& a, const Power& v,
                      const Site&) { return norm_of(in[0], a, v.power); },
          .backward = norm_gradient,
          .saves = {1, true}};
}

/// The norm of the whole is the sum, or an extreme, of the norms of the ranks' stretches.
template <ReduceOp kOver>
void made_of_parts(Rules& r, Metas in, const ReducedDims& a) {
  reduction_indices(r, in[0].shape, a).cut_all(kOver);
}

constexpr Op<ReducedDims, Power> kNorm = norm_by(keep_reduced_whole);
constexpr Op<ReducedDims, Power> kNormOfSums = norm_by(made_of_parts<ReduceOp::sum>);
constexpr Op<ReducedDims, Power> kGreatestSize = norm_by(made_of_parts<ReduceOp::max>);
constexpr Op<ReducedDims, Power> kLeastSize = norm_by(made_of_parts<ReduceOp::min>);

const Op<ReducedDims, Power>& norm_op(double power) {
  if (power == 0 || power == 1) return kNormOfSums;
  if (!std::isinf(power)) return kNorm;
  return power > 0 ? kGreatestSize : kLeastSize;
}

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
  const LegalLayoutsOf legal(kNorm, x, dims);
  const ReducedDims kept{dims.dims, KeepDim::yes};
  const LocalTensor all = parts_of_all(x, dims, norm_of(x.local(), kept, power));
  return of_rows(x, dims, norm_of(all, kept, power));
}

}  // namespace

Tensor norm(const Tensor& a, double power, const std::vector<int>& dims, bool keepdim) {
  return named_call("norm", {{"input", a}}, [&] {
    const ReducedDims reduced = reduced_dims("norm", a, dims, keepdim);
    if (std::isinf(power) || power < 0) require_some("norm", a.shape(), reduced);
    const Tensor x = without_partial(a);
    const Op<ReducedDims, Power>& op = norm_op(power);
    if (&op != &kNorm || !is_cut_along(x, reduced)) return call(op, x, reduced, Power{power});
    require_floating("norm", x.dtype());
    return recorded(kNorm, x, norm_over_ranks(x.detach(), reduced, power), reduced, Power{power});
  });
}

Tensor logsumexp(const Tensor& a, const std::vector<int>& dims, bool keepdim) {
  return named_call("logsumexp", {{"input", a}}, [&] {
    const ReducedDims reduced = reduced_dims("logsumexp", a, dims, keepdim);
    const Tensor x = without_partial(a);
    if (!is_cut_along(x, reduced)) return call(kLogSumExp, x, reduced);
    const LegalLayoutsOf legal(kLogSumExp, x, reduced);
    const LocalTensor all =
        parts_of_all(x, reduced, tensors::logsumexp(x.local(), reduced.dims, true));
    const Tensor result = of_rows(x, reduced, tensors::logsumexp(all, reduced.dims, true));
    return recorded(kLogSumExp, x, result, reduced);
  });
}

}  // namespace dtrun::dtensor
