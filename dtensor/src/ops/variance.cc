// var and stddev. Where ranks hold different stretches, from the distances from the common mean.
#include <algorithm>

#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/tensor/ops/reduction.h"
#include "move/cause.h"
#include "ops/reduced_dims.h"

namespace dtrun::dtensor {
namespace {

struct Correction {
  double correction;
};
using SpreadContext = Context<ReducedDims, Correction>;

double divisor_of(const Shape& shape, const ReducedDims& a, double correction) {
  return std::max(0.0, static_cast<double>(reduced_count(shape, a)) - correction);
}

/// Of var, with the reduced dims 1, on its way to x.
Tensor variance_gradient(const Tensor& x, const Tensor& g, const SpreadContext& c) {
  const ReducedDims& a = c.attributes();
  const double divisor = divisor_of(x.shape(), a, c.numbers().correction);
  return (g * (2 / divisor)) * (x - mean(x, a.dims, true));
}

Tensors var_gradient(const SpreadContext& c) {
  return {
      variance_gradient(without_partial(c.input(0)), with_dims_back(c.grad(), c.attributes()), c)};
}

Tensors stddev_gradient(const SpreadContext& c) {
  const Tensor g = with_dims_back(c.grad(), c.attributes());
  const Tensor y = without_partial(with_dims_back(c.output(), c.attributes()));
  const Tensor of_var = where(eq(y, 0), zeros_like(y), g / (y * 2));
  return {variance_gradient(without_partial(c.input(0)), of_var, c)};
}

using SpreadKernel = LocalTensor (*)(const LocalTensor&, const std::vector<int>&, double, bool);

template <SpreadKernel kKernel>
LocalTensor run_spread(Locals in, const ReducedDims& a, const Correction& v, const Site&) {
  return kKernel(in[0], a.dims, v.correction, a.keeps());
}

Meta floating_result(std::string_view op, Metas in, const ReducedDims& a) {
  require_floating(op, in[0].dtype);
  return {reduced_shape(in[0].shape, a), in[0].dtype};
}

constexpr Op<ReducedDims, Correction> kVar{
    .name = "var",
    .meta = [](Metas in, const ReducedDims& a) { return floating_result("var", in, a); },
    .rules = keep_reduced_whole,
    .local = run_spread<tensors::var>,
    .backward = var_gradient,
    .saves = saves_input(0)};
constexpr Op<ReducedDims, Correction> kStddev{
    .name = "std",
    .meta = [](Metas in, const ReducedDims& a) { return floating_result("std", in, a); },
    .rules = keep_reduced_whole,
    .local = run_spread<tensors::stddev>,
    .backward = stddev_gradient,
    .saves = {1, true}};

/// In f32 at least.
Tensor variance_over_ranks(const Tensor& a, const ReducedDims& dims, double correction) {
  const Cause cause("var", Cause::Wish::implied);
  const bool half = a.dtype() == DType::f16 || a.dtype() == DType::bf16;
  const Tensor x = half ? a.to(DType::f32) : a;
  const Tensor squares = sum(square(x - mean(x, dims.dims, true)), dims.dims, dims.keeps());
  return without_partial(squares) / divisor_of(x.shape(), dims, correction);
}

}  // namespace

Tensor var(const Tensor& a, const std::vector<int>& dims, double correction, bool keepdim) {
  const ReducedDims reduced = reduced_dims("var", a, dims, keepdim);
  const Tensor x = without_partial(a);
  if (!is_cut_along(x, reduced)) return call(kVar, x, reduced, Correction{correction});
  require_floating("var", x.dtype());
  const Tensor value = variance_over_ranks(x.detach(), reduced, correction);
  return recorded(kVar, x, value.to(x.dtype()), reduced, Correction{correction});
}

Tensor stddev(const Tensor& a, const std::vector<int>& dims, double correction, bool keepdim) {
  const ReducedDims reduced = reduced_dims("std", a, dims, keepdim);
  const Tensor x = without_partial(a);
  if (!is_cut_along(x, reduced)) return call(kStddev, x, reduced, Correction{correction});
  require_floating("std", x.dtype());
  const Tensor value = sqrt(variance_over_ranks(x.detach(), reduced, correction));
  return recorded(kStddev, x, value.to(x.dtype()), reduced, Correction{correction});
}

}  // namespace dtrun::dtensor
