#include "dtrun/dtensor/ops/rows.h"

#include "autograd/call.h"
#include "autograd/legal_layouts_of.h"
#include "autograd/named_call.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/reduction.h"
#include "dtrun/tensor/ops/rows.h"
#include "move/neutral.h"
#include "ops/add_matmul.h"
#include "ops/named_dim.h"
#include "ops/reduced_dims.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;

struct RowDim {
  int dim;
};
void append_key(CallKey& key, const RowDim& a) {
  key.push_back(a.dim);
}

Meta row_meta(const char* op, Metas in) {
  if (tensors::is_floating_point(in[0].dtype)) return in[0];
  throw Error(ErrorCode::kInvalidArgument,
              std::string(op) + " of a tensor of " + std::string(tensors::dtype_name(in[0].dtype)),
              "it takes floating point numbers", "to(DType::f32)");
}

void whole_rows(Rules& r, Metas, const RowDim& a) {
  r.all_but(a.dim).cut_all();
}

constexpr Op<RowDim> kSoftmaxBackward{
    .name = "softmax_backward",
    .meta = [](Metas in, const RowDim&) { return in[0]; },
    .rules = whole_rows,
    .local = [](Locals in, const RowDim& a, const None&,
                const Site&) { return tensors::softmax_backward(in[0], in[1], a.dim); },
    // g' = y (g - sum(g y)), linear in g.
    .backward = [](const Context<RowDim, None>& c) -> Tensors {
      const Tensor g = c.input(0), y = c.input(1), h = c.grad();
      const std::vector<int> dims = {c.attributes().dim};
      const Tensor hy = sum(h * y, dims, true);
      return {c.needs(0) ? y * (h - hy) : Tensor(),
              c.needs(1) ? h * (g - sum(g * y, dims, true)) - g * hy : Tensor()};
    },
    .saves = saves_inputs(0, 1)};

/// y (g - sum(g y)). Where rows are cut, only their sums travel.
Tensor softmax_gradient(const Tensor& g, const Tensor& y, const RowDim& a) {
  if (!is_cut_along(y, a.dim)) return call(kSoftmaxBackward, g, y, a);
  return y * (g - sum(g * y, {a.dim}, true));
}

constexpr Op<RowDim> kSoftmax{
    .name = "softmax",
    .meta = [](Metas in, const RowDim&) { return row_meta("softmax", in); },
    .rules = whole_rows,
    .local = [](Locals in, const RowDim& a, const None&,
                const Site&) { return tensors::softmax(in[0], a.dim); },
    .backward = [](const Context<RowDim, None>& c) -> Tensors {
      return {softmax_gradient(c.grad(), c.output(), c.attributes())};
    },
    .saves = saves_output(),
    .weighed = Weighed::there_and_back};

/// Of log-probabilities softmax is exp.
Tensor probabilities(const Tensor& log_probabilities, int dim) {
  return softmax(log_probabilities, dim);
}

constexpr Op<RowDim> kLogSoftmaxBackward{
    .name = "log_softmax_backward",
    .meta = [](Metas in, const RowDim&) { return in[0]; },
    .rules = whole_rows,
    .local = [](Locals in, const RowDim& a, const None&,
                const Site&) { return tensors::log_softmax_backward(in[0], in[1], a.dim); },
    // g' = g - exp(y) sum(g)
    .backward = [](const Context<RowDim, None>& c) -> Tensors {
      const int dim = c.attributes().dim;
      const Tensor p = probabilities(c.input(1), dim), h = c.grad();
      return {c.needs(0) ? h - sum(h * p, {dim}, true) : Tensor(),
              c.needs(1) ? neg(h * p * sum(c.input(0), {dim}, true)) : Tensor()};
    },
    .saves = saves_inputs(0, 1)};

Tensor log_softmax_gradient(const Tensor& g, const Tensor& y, const RowDim& a) {
  if (!is_cut_along(y, a.dim)) return call(kLogSoftmaxBackward, g, y, a);
  return g - exp(y) * sum(g, {a.dim}, true);
}

constexpr Op<RowDim> kLogSoftmax{
    .name = "log_softmax",
    .meta = [](Metas in, const RowDim&) { return row_meta("log_softmax", in); },
    .rules = whole_rows,
    .local = [](Locals in, const RowDim& a, const None&,
                const Site&) { return tensors::log_softmax(in[0], a.dim); },
    .backward = [](const Context<RowDim, None>& c) -> Tensors {
      return {log_softmax_gradient(c.grad(), c.output(), c.attributes())};
    },
    .saves = saves_output(),
    .weighed = Weighed::there_and_back};

/// The numbers of rows of which ranks hold stretches, without their rows' greatest: nothing
/// overflows. In f32 at least.
struct Lowered {
  Tensor x;
  LocalTensor part;
  LocalTensor exponentials;
  LocalTensor total;  ///< of the row's exponentials
};

/// The greatest number and the sum of each stretch travel, in one collective.
Lowered lowered(const char* op, const Tensor& a, const RowDim& row) {
  const Meta meta{a.shape(), a.dtype()};
  row_meta(op, {&meta, 1});
  const bool is_half = a.dtype() == DType::f16 || a.dtype() == DType::bf16;
  const Tensor x = without_partial(is_half ? a.to(DType::f32) : a);
  const LocalTensor part = x.local();
  const ReducedDims dims{{row.dim}, KeepDim::yes};
  const LocalTensor own = reduced_count(part.shape(), dims) == 0
                              ? neutral_like(part, reduced_shape(part.shape(), dims), ReduceOp::max)
                              : tensors::amax(part, dims.dims, true);
  // A stretch of nothing but -inf, or of nothing at all, counts for nothing.
  const LocalTensor lowest = tensors::where(tensors::isinf(own), 0, own);
  const LocalTensor sums = tensors::sum(tensors::exp(tensors::sub(part, lowest)), dims.dims, true);
  const LocalTensor all = parts_of_all(x, dims, tensors::stack({own, sums}, x.dim()));
  const LocalTensor greatest_of_each = all.select(x.dim(), 0);
  const LocalTensor greatest = tensors::amax(greatest_of_each, dims.dims, true);
  const LocalTensor weights = tensors::exp(tensors::sub(greatest_of_each, greatest));
  const LocalTensor low = tensors::sub(part, greatest);
  return {x, low, tensors::exp(low),
          tensors::sum(tensors::mul(all.select(x.dim(), 1), weights), dims.dims, true)};
}

Tensor softmax_of_cut(const Tensor& a, const RowDim& row) {
  const LegalLayoutsOf legal(kSoftmax, a, row);
  const NoGrad no_grad;
  const Lowered low = lowered("softmax", a, row);
  return lying_as(low.x, tensors::div(low.exponentials, low.total).to(a.dtype()));
}

Tensor log_softmax_of_cut(const Tensor& a, const RowDim& row) {
  const LegalLayoutsOf legal(kLogSoftmax, a, row);
  const NoGrad no_grad;
  const Lowered low = lowered("log_softmax", a, row);
  return lying_as(low.x, tensors::sub(low.part, tensors::log(low.total)).to(a.dtype()));
}

bool stays_cut(const Tensor& a, const RowDim& row) {
  return is_cut_along(a, row.dim) && !comes_sooner_whole(a, {{row.dim}, KeepDim::yes});
}

RowDim row_dim(std::string_view op, const Tensor& a, int dim) {
  return {named_dim_or_only(op, a, dim)};
}

}  // namespace

Tensor softmax(const Tensor& a, int dim) {
  return named_call("softmax", {{"input", a}}, [&] {
    const RowDim row = row_dim("softmax", a, dim);
    if (!stays_cut(a, row)) return call(kSoftmax, a, row);
    return recorded(kSoftmax, a, softmax_of_cut(a, row), row);
  });
}

Tensor log_softmax(const Tensor& a, int dim) {
  return named_call("log_softmax", {{"input", a}}, [&] {
    const RowDim row = row_dim("log_softmax", a, dim);
    if (!stays_cut(a, row)) return call(kLogSoftmax, a, row);
    return recorded(kLogSoftmax, a, log_softmax_of_cut(a, row), row);
  });
}

Tensor softmax(const Tensor& a, int dim, DType dtype) {
  return named_call("softmax", {{"input", a}}, [&] { return softmax(a.to(dtype), dim); });
}
Tensor log_softmax(const Tensor& a, int dim, DType dtype) {
  return named_call("log_softmax", {{"input", a}}, [&] { return log_softmax(a.to(dtype), dim); });
}

Tensor linear(const Tensor& a, const Tensor& weight, const Tensor& bias) {
  return named_call("linear",
                    {{"input", a}, {"weight", weight}, CallArgument::if_given("bias", bias)}, [&] {
                      return bias.defined() ? add_matmul(AddMatmulFor::linear, bias, a, weight.t())
                                            : matmul(a, weight.t());
                    });
}

}  // namespace dtrun::dtensor
