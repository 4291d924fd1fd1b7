#include "ops/cut_rows.h"

#include <algorithm>
#include <utility>

#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/reduction.h"

namespace dtrun::dtensor {

CutRows::CutRows(const Tensor& a, ReducedDims dims, Distances distances)
    : a_(without_partial(a)), dims_(std::move(dims)) {
  part_ = a_.local().to(a.dtype() == DType::f64 ? DType::f64 : DType::f32);
  const auto count = static_cast<double>(reduced_count(part_.shape(), dims_));
  const LocalTensor sums = total(part_);
  counts_ = tensors::full(sums.shape(), count, {part_.dtype(), part_.device()});
  // Distances from the mean of the stretch: squares of what is far from 0 would not tell.
  means_ = distances == Distances::from_mean ? tensors::div(sums, std::max(1.0, count))
                                             : tensors::mul(sums, 0.0);
  distances_ = tensors::sub(part_, means_);
}

void CutRows::merge(const std::vector<LocalTensor>& more) {
  std::vector<LocalTensor> own = {counts_, means_, total(tensors::mul(distances_, distances_))};
  own.insert(own.end(), more.begin(), more.end());
  all_ = parts_of_all(a_, dims_, tensors::stack(own, a_.dim()));
  const LocalTensor counts = numbers(0), means = numbers(1);
  mean_ = tensors::div(total(tensors::mul(counts, means)), row_size());
  // Of an empty stretch there is none: 0 times its square need not be 0.
  shifts_ = tensors::where(tensors::eq(counts, 0), 0, tensors::sub(means, mean_));
  squares_ = total(tensors::add(numbers(2), tensors::mul(counts, tensors::mul(shifts_, shifts_))));
}

}  // namespace dtrun::dtensor
