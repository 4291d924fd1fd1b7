#include "ops/norm_of_cut.h"

#include <algorithm>
#include <utility>

#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/reduction.h"
#include "ops/cut_rows.h"

namespace dtrun::dtensor {

ReducedDims last_dims_of(const Tensor& a, int dims) {
  ReducedDims last{{}, KeepDim::yes};
  for (int dim = a.dim() - dims; dim < a.dim(); ++dim) last.dims.push_back(dim);
  return last;
}

namespace {

/// The scale of each row, after merge().
LocalTensor scale_of(const CutRows& rows, const CutNorm& norm) {
  return tensors::rsqrt(tensors::add(tensors::div(rows.squares(), rows.row_size()), norm.eps));
}

LocalTensor normalized(const CutRows& rows, const LocalTensor& scale) {
  return tensors::mul(tensors::sub(rows.part(), rows.mean()), scale);
}

CutRows rows_of(const Tensor& a, const CutNorm& norm) {
  const bool has_mean = norm.form == NormForm::layer;
  return {a, last_dims_of(a, norm.dims), has_mean ? Distances::from_mean : Distances::from_zero};
}

}  // namespace

bool has_cut_rows(const Tensor& a, int dims) {
  return is_cut_along(a, last_dims_of(a, dims));
}

Tensor norm_of_cut(const Tensor& a, const CutNorm& norm, const Tensor& weight, const Tensor& bias) {
  const NoGrad no_grad;
  CutRows rows = rows_of(a, norm);
  rows.merge();
  Tensor result = lying_as(rows.tensor(), normalized(rows, scale_of(rows, norm)));
  const DType dtype = result.dtype();
  if (weight.defined()) result = result * weight.to(dtype);
  if (bias.defined()) result = result + bias.to(dtype);
  return result.redistribute(rows.tensor().placements(), rows.tensor().spec().shard_order())
      .to(a.dtype());
}

// With w the weighted gradient: (w - normalized mean(w normalized) - mean(w)) scale; rms_norm has
// no mean(w). Of w and its products with the distances each rank has its sums.
CutNormGradients norm_gradients_of_cut(const Tensor& gradient, const Tensor& a, const CutNorm& norm,
                                       const Tensor& weight) {
  const NoGrad no_grad;
  CutRows rows = rows_of(a, norm);
  const Tensor& x = rows.tensor();
  const auto as_x = [&](const Tensor& tensor) {
    return tensor.redistribute(x.placements(), x.spec().shard_order());
  };
  const DType dtype = rows.part().dtype();
  const Tensor g = as_x(gradient).to(dtype);
  const LocalTensor w = weight.defined() ? as_x(g * weight.to(dtype)).local() : g.local();
  rows.merge({rows.total(w), rows.total(tensors::mul(w, rows.distances()))});
  const LocalTensor w_sums = rows.more(0), scale = scale_of(rows, norm);
  const LocalTensor products =
      rows.total(tensors::add(rows.more(1), tensors::mul(rows.shifts(), w_sums)));
  const LocalTensor along = tensors::mul(tensors::div(products, rows.row_size()), scale);
  const LocalTensor normal = normalized(rows, scale);
  LocalTensor back = tensors::sub(w, tensors::mul(normal, along));
  if (norm.form == NormForm::layer) {
    back = tensors::sub(back, tensors::div(rows.total(w_sums), rows.row_size()));
  }
  return {lying_as(x, tensors::mul(back, scale).to(a.dtype())), lying_as(x, normal), g};
}

}  // namespace dtrun::dtensor
