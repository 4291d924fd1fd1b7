// var and stddev. Where ranks hold different stretches, what travels are the stretches' means and
// the squares of the distances from them.
#include <algorithm>

#include "autograd/legal_layouts_of.h"
#include "autograd/named_call.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/tensor/ops/reduction.h"
#include "ops/cut_rows.h"

namespace dtrun::dtensor {
namespace {

struct Correction {
  double correction;
};
using SpreadContext = Context<ReducedDims, Correction>;

double divisor_of(const Shape& shape, const ReducedDims& a, double correction) {
  return std::max(0.0, static_cast<double>(reduced_count(shape, a)) - correction);
}

/// Of var, with the reduced dims 1, on its way to x. The second input, if there is one, is x's
/// mean, of f32 at least.
Tensors variance_gradient(const SpreadContext& c, const Tensor& g) {
  const ReducedDims& a = c.attributes();
  const Tensor x = without_partial(c.input(0));
  const bool is_known = c.inputs() > 1 && !Graph::is_on();
  const Tensor center = is_known ? c.input(1) : mean(x, a.dims, true);
  Tensors gradients(c.inputs());
  const Tensor scaled = g * (2 / divisor_of(x.shape(), a, c.numbers().correction));
  gradients[0] = (scaled * (x - center)).to(c.dtype(0));
  return gradients;
}

Tensors var_gradient(const SpreadContext& c) {
  return variance_gradient(c, with_dims_back(c.grad(), c.attributes()));
}

Tensors stddev_gradient(const SpreadContext& c) {
  const Tensor g = with_dims_back(c.grad(), c.attributes());
  const Tensor y = without_partial(with_dims_back(c.output(), c.attributes()));
  const Tensor of_var = where(eq(y, 0), zeros_like(y), g / (y * 2));
  return variance_gradient(c, of_var);
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
    .saves = saves_inputs(0, 1)};
constexpr Op<ReducedDims, Correction> kStddev{
    .name = "std",
    .meta = [](Metas in, const ReducedDims& a) { return floating_result("std", in, a); },
    .rules = keep_reduced_whole,
    .local = run_spread<tensors::stddev>,
    .backward = stddev_gradient,
    .saves = {0b11, true}};

using OfVariance = LocalTensor (*)(const LocalTensor&);

/// Where ranks hold different stretches. @param of what is made of the variance
Tensor spread_of_cut(const Op<ReducedDims, Correction>& op, const Tensor& x,
                     const ReducedDims& dims, double correction, OfVariance of) {
  const LegalLayoutsOf legal(op, x, dims);
  require_floating(op.name, x.dtype());
  Tensor value, center;
  {
    const NoGrad no_grad;
    CutRows rows(x, {dims.dims, KeepDim::yes}, Distances::from_mean);
    rows.merge();
    const double divisor = divisor_of(x.shape(), dims, correction);
    value = of_rows(x, dims, of(tensors::div(rows.squares(), divisor)).to(x.dtype()));
    center = of_rows(x, {dims.dims, KeepDim::yes}, rows.mean());
  }
  const Tensor* const inputs[] = {&x, &center};
  return recorded(op, std::span<const Tensor* const>(inputs), value, dims, Correction{correction});
}

}  // namespace

Tensor var(const Tensor& a, const std::vector<int>& dims, double correction, bool keepdim) {
  return named_call("var", {{"input", a}}, [&] {
    const ReducedDims reduced = reduced_dims("var", a, dims, keepdim);
    const Tensor x = without_partial(a);
    if (!is_cut_along(x, reduced)) return call(kVar, x, reduced, Correction{correction});
    return spread_of_cut(kVar, x, reduced, correction,
                         [](const LocalTensor& variance) { return variance; });
  });
}

Tensor stddev(const Tensor& a, const std::vector<int>& dims, double correction, bool keepdim) {
  return named_call("std", {{"input", a}}, [&] {
    const ReducedDims reduced = reduced_dims("std", a, dims, keepdim);
    const Tensor x = without_partial(a);
    if (!is_cut_along(x, reduced)) return call(kStddev, x, reduced, Correction{correction});
    return spread_of_cut(kStddev, x, reduced, correction, tensors::sqrt);
  });
}
Tensor std(const Tensor& a, const std::vector<int>& dims, double correction, bool keepdim) {
  return stddev(a, dims, correction, keepdim);
}

}  // namespace dtrun::dtensor
