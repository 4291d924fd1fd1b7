#include "ops/norm_of_cut.h"

#include <algorithm>
#include <utility>

#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/reduction.h"
#include "ops/reduced_dims.h"

namespace dtrun::dtensor {
namespace {

ReducedDims last_dims_of(const Tensor& a, int dims) {
  ReducedDims last{{}, KeepDim::yes};
  for (int dim = a.dim() - dims; dim < a.dim(); ++dim) last.dims.push_back(dim);
  return last;
}

DType computed_dtype(DType dtype) {
  return dtype == DType::f64 ? DType::f64 : DType::f32;
}

Tensor lying_so(const Tensor& a, LocalTensor local) {
  const DType dtype = local.dtype();
  return Tensor(make_spec(a.device_mesh(), a.spec().layout(), a.shape(), dtype), std::move(local));
}

/// The numbers of each row, which stand along one more dim, of every rank that has a stretch of it.
LocalTensor from_all(const Tensor& a, const ReducedDims& dims, LocalTensor numbers) {
  const DeviceMesh mesh = a.device_mesh();
  Shape shape = a.shape();
  Placements parts = a.placements(), whole = parts;
  ShardOrder order = a.spec().shard_order();
  for (const int dim : dims.dims) {
    shape[static_cast<std::size_t>(dim)] = 1;
    order.erase(dim);
  }
  for (std::size_t axis = 0; axis < whole.size(); ++axis) {
    if (!whole[axis].is_shard() || !dims.holds(whole[axis].dim())) continue;
    shape[static_cast<std::size_t>(whole[axis].dim())] *= mesh.shape()[axis];
    whole[axis] = Replicate();
    parts[axis] = parts[axis].even();
  }
  shape.push_back(numbers.size(numbers.dim() - 1));
  const Spec spec = make_spec(mesh, parts, shape, numbers.dtype(), a.spec().shard_order());
  return Tensor(spec, std::move(numbers)).redistribute(whole, order).local();
}

/// This rank's stretches of the rows, and what all know of the rows once their numbers came.
class CutRows {
 public:
  CutRows(const Tensor& a, const CutNorm& norm)
      : norm_(norm), a_(without_partial(a)), dims_(last_dims_of(a, norm.dims)) {
    part_ = a_.local().to(computed_dtype(a.dtype()));
    const auto count = static_cast<double>(reduced_count(part_.shape(), dims_));
    const LocalTensor sums = total(part_);
    counts_ = tensors::full(sums.shape(), count, {part_.dtype(), part_.device()});
    // Distances from the mean of the stretch: squares of what is far from 0 would not tell.
    means_ = norm.form == NormForm::layer ? tensors::div(sums, std::max(1.0, count))
                                          : tensors::mul(sums, 0.0);
    distances_ = tensors::sub(part_, means_);
  }

  const Tensor& tensor() const { return a_; }
  const LocalTensor& distances() const { return distances_; }
  LocalTensor total(const LocalTensor& part) const { return tensors::sum(part, dims_.dims, true); }

  /// @param more numbers of each row, which travel along
  void merge(const std::vector<LocalTensor>& more = {}) {
    std::vector<LocalTensor> own = {counts_, means_, total(tensors::mul(distances_, distances_))};
    own.insert(own.end(), more.begin(), more.end());
    all_ = from_all(a_, dims_, tensors::stack(own, a_.dim()));
    const LocalTensor counts = numbers(0), means = numbers(1);
    mean_ = tensors::div(total(tensors::mul(counts, means)), row_size());
    shifts_ = tensors::sub(means, mean_);
    const LocalTensor squares =
        tensors::add(numbers(2), tensors::mul(counts, tensors::mul(shifts_, shifts_)));
    const LocalTensor variance = tensors::div(total(squares), row_size());
    scale_ = tensors::rsqrt(tensors::add(variance, norm_.eps));
  }
  /// Of all ranks, after merge().
  LocalTensor numbers(int which) const { return all_.select(a_.dim(), which); }
  /// How far their means are from that of the row.
  const LocalTensor& shifts() const { return shifts_; }
  const LocalTensor& scale() const { return scale_; }
  double row_size() const { return static_cast<double>(reduced_count(a_.shape(), dims_)); }
  LocalTensor normalized() const { return tensors::mul(tensors::sub(part_, mean_), scale_); }

 private:
  const CutNorm norm_;
  const Tensor a_;
  const ReducedDims dims_;
  LocalTensor part_, counts_, means_, distances_;
  LocalTensor all_, mean_, shifts_, scale_;
};

}  // namespace

bool has_cut_rows(const Tensor& a, int dims) {
  return is_cut_along(a, last_dims_of(a, dims));
}

Tensor norm_of_cut(const Tensor& a, const CutNorm& norm, const Tensor& weight, const Tensor& bias) {
  const NoGrad no_grad;
  CutRows rows(a, norm);
  rows.merge();
  Tensor result = lying_so(rows.tensor(), rows.normalized());
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
  CutRows rows(a, norm);
  const Tensor& x = rows.tensor();
  const auto as_x = [&](const Tensor& tensor) {
    return tensor.redistribute(x.placements(), x.spec().shard_order());
  };
  const DType dtype = computed_dtype(a.dtype());
  const Tensor g = as_x(gradient).to(dtype);
  const LocalTensor w = weight.defined() ? as_x(g * weight.to(dtype)).local() : g.local();
  rows.merge({rows.total(w), rows.total(tensors::mul(w, rows.distances()))});
  const LocalTensor w_sums = rows.numbers(3);
  const LocalTensor products =
      rows.total(tensors::add(rows.numbers(4), tensors::mul(rows.shifts(), w_sums)));
  const LocalTensor along = tensors::mul(tensors::div(products, rows.row_size()), rows.scale());
  const LocalTensor normalized = rows.normalized();
  LocalTensor back = tensors::sub(w, tensors::mul(normalized, along));
  if (norm.form == NormForm::layer) {
    back = tensors::sub(back, tensors::div(rows.total(w_sums), rows.row_size()));
  }
  return {lying_so(x, tensors::mul(back, rows.scale()).to(a.dtype())), lying_so(x, normalized), g};
}

}  // namespace dtrun::dtensor
