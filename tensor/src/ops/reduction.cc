// Maps each reduction to a fold and the dims it runs over; loops/reduce_loop.cc runs it.
#include "dtrun/tensor/ops/reduction.h"

#include <fmt/core.h>

#include <cmath>
#include <limits>

#include "cuda/kernels.h"
#include "cuda/reductions.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "kernels/equality_kernel.h"
#include "kernels/fold_kernel.h"
#include "kernels/sum_kernel.h"
#include "loops/reduce_loop.h"
#include "loops/strided_loop.h"
#include "ops/map_call.h"
#include "require.h"

namespace dtrun::tensors {
namespace {

using base::Error;
using base::ErrorCode;

enum class KeepDims : std::uint8_t { no, yes };

constexpr KeepDims keep(bool keepdim) {
  return keepdim ? KeepDims::yes : KeepDims::no;
}

/// Which dims are reduced; all of them where none is named, as PyTorch reads it.
std::vector<bool> marked_dims(std::string_view name, const std::vector<int>& dims,
                              std::size_t rank) {
  std::vector<bool> marked(rank, dims.empty());
  for (const int dim : dims) {
    if (rank == 0 && (dim == 0 || dim == -1)) continue;
    const std::size_t d = static_cast<std::size_t>(normalize_dim(dim, rank));
    if (marked[d]) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("{} was given dim {} twice", name, d),
                  "a dim is reduced once", "each dim once; a negative one counts from the last");
    }
    marked[d] = true;
  }
  return marked;
}

/// A reduction of one tensor, before the fold is known.
struct Plan {
  std::vector<bool> reduced;
  Shape shape;             ///< of the result
  std::int64_t count = 1;  ///< elements of one result
};

Plan plan_reduction(std::string_view name, const LocalTensor& a, const std::vector<int>& dims,
                    KeepDims keepdim) {
  Plan plan{marked_dims(name, dims, a.shape().size()), {}, 1};
  for (std::size_t d = 0; d < plan.reduced.size(); ++d) {
    if (plan.reduced[d]) plan.count *= a.shape()[d];
    if (!plan.reduced[d] || keepdim == KeepDims::yes)
      plan.shape.push_back(plan.reduced[d] ? 1 : a.shape()[d]);
  }
  return plan;
}

struct Reducer {
  std::string_view name;
  Fold fold;
  double number = 0;
};

LocalTensor reduce(const Reducer& reducer, const LocalTensor& a, const Plan& plan, DType result) {
  // A single element is folded with the neutral one, too, so that the sum of [-0.] is 0 as for
  // other sizes.
  if (a.dim() == 0) return reduce(reducer, a.view({1}), Plan{{true}, plan.shape, 1}, result);
  const LocalTensor out = empty(plan.shape, {result, a.device()});
  const FoldNumbers numbers{plan.count, reducer.number};
  if (a.device().is_cpu()) {
    reduce_elements(out, a, plan.reduced, fold_kernel(reducer.fold, a.dtype()), numbers);
  } else {
    cuda::fold_elements(out, a, plan.reduced, reducer.fold, numbers);
  }
  return out;
}

/// For floating point only; the result has the input's dtype.
LocalTensor reduce_floating(const Reducer& reducer, const LocalTensor& a,
                            const std::vector<int>& dims, KeepDims keepdim) {
  if (!is_floating_point(a.dtype())) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} does not take {} tensors", reducer.name, dtype_name(a.dtype())),
                "its result has a fraction", "to(DType::f32) first");
  }
  return reduce(reducer, a, plan_reduction(reducer.name, a, dims, keepdim), a.dtype());
}

void require_elements(std::string_view name, const LocalTensor& a, const Plan& plan) {
  if (plan.count != 0) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} of no elements: shape {}", name, shape_to_string(a.shape())),
              "an empty tensor has no such element",
              "ask numel() first, or a dim that has elements");
}

LocalTensor extreme(const Reducer& reducer, const LocalTensor& a, const std::vector<int>& dims,
                    KeepDims keepdim) {
  const Plan plan = plan_reduction(reducer.name, a, dims, keepdim);
  require_elements(reducer.name, a, plan);
  return reduce(reducer, a, plan, a.dtype());
}

LocalTensor index_of(const Reducer& reducer, const LocalTensor& a, const std::vector<int>& dims,
                     KeepDims keepdim) {
  if (a.dtype() == DType::boolean) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} does not take bool tensors", reducer.name),
                "truth values are no numbers here",
                "to(DType::u8) first, or max() along a dim, which gives indices, too");
  }
  const Plan plan = plan_reduction(reducer.name, a, dims, keepdim);
  require_elements(reducer.name, a, plan);
  return reduce(reducer, a, plan, DType::i64);
}

LocalTensor truth(const Reducer& reducer, const LocalTensor& a, const std::vector<int>& dims,
                  KeepDims keepdim) {
  const DType result = a.dtype() == DType::u8 ? DType::u8 : DType::boolean;
  return reduce(reducer, a, plan_reduction(reducer.name, a, dims, keepdim), result);
}

Fold fold_of_power(double power) {
  if (power == 0) return Fold::norm_0;
  if (power == 1) return Fold::norm_1;
  if (power == 2) return Fold::norm_2;
  if (!std::isinf(power)) return Fold::norm_p;
  return power > 0 ? Fold::norm_infinity : Fold::norm_minus_infinity;
}

}  // namespace

LocalTensor sum(const LocalTensor& a) {
  return sum(a, {});
}
LocalTensor sum(const LocalTensor& a, const std::vector<int>& dims, bool keepdim) {
  const Plan plan = plan_reduction("sum", a, dims, keep(keepdim));
  return reduce({"sum", Fold::sum}, a, plan, sum_dtype(a.dtype()));
}
LocalTensor prod(const LocalTensor& a) {
  return reduce({"prod", Fold::product}, a, plan_reduction("prod", a, {}, KeepDims::no),
                sum_dtype(a.dtype()));
}
LocalTensor prod(const LocalTensor& a, int dim, bool keepdim) {
  return reduce({"prod", Fold::product}, a, plan_reduction("prod", a, {dim}, keep(keepdim)),
                sum_dtype(a.dtype()));
}
LocalTensor mean(const LocalTensor& a, const std::vector<int>& dims, bool keepdim) {
  return reduce_floating({"mean", Fold::mean}, a, dims, keep(keepdim));
}
LocalTensor var(const LocalTensor& a, const std::vector<int>& dims, double correction,
                bool keepdim) {
  return reduce_floating({"var", Fold::variance, correction}, a, dims, keep(keepdim));
}
LocalTensor stddev(const LocalTensor& a, const std::vector<int>& dims, double correction,
                   bool keepdim) {
  return reduce_floating({"std", Fold::deviation, correction}, a, dims, keep(keepdim));
}
LocalTensor norm(const LocalTensor& a, double power, const std::vector<int>& dims, bool keepdim) {
  const Fold fold = fold_of_power(power);
  if (fold == Fold::norm_infinity || fold == Fold::norm_minus_infinity)
    require_elements("norm", a, plan_reduction("norm", a, dims, keep(keepdim)));
  return reduce_floating({"norm", fold, power}, a, dims, keep(keepdim));
}
LocalTensor logsumexp(const LocalTensor& a, const std::vector<int>& dims, bool keepdim) {
  const LocalTensor floating = is_floating_point(a.dtype()) ? a : a.to(DType::f32);
  return reduce_floating({"logsumexp", Fold::log_sum_exp}, floating, dims, keep(keepdim));
}

LocalTensor amax(const LocalTensor& a, const std::vector<int>& dims, bool keepdim) {
  return extreme({"amax", Fold::maximum}, a, dims, keep(keepdim));
}
LocalTensor amin(const LocalTensor& a, const std::vector<int>& dims, bool keepdim) {
  return extreme({"amin", Fold::minimum}, a, dims, keep(keepdim));
}
LocalTensor max(const LocalTensor& a) {
  return extreme({"max", Fold::maximum}, a, {}, KeepDims::no);
}
LocalTensor min(const LocalTensor& a) {
  return extreme({"min", Fold::minimum}, a, {}, KeepDims::no);
}
Extremes max(const LocalTensor& a, int dim, bool keepdim) {
  const LocalTensor ordered = a.dtype() == DType::boolean ? a.to(DType::u8) : a;
  return {extreme({"max", Fold::maximum}, a, {dim}, keep(keepdim)), argmax(ordered, dim, keepdim)};
}
Extremes min(const LocalTensor& a, int dim, bool keepdim) {
  const LocalTensor ordered = a.dtype() == DType::boolean ? a.to(DType::u8) : a;
  return {extreme({"min", Fold::minimum}, a, {dim}, keep(keepdim)), argmin(ordered, dim, keepdim)};
}
LocalTensor argmax(const LocalTensor& a) {
  return index_of({"argmax", Fold::index_of_maximum}, a, {}, KeepDims::no);
}
LocalTensor argmin(const LocalTensor& a) {
  return index_of({"argmin", Fold::index_of_minimum}, a, {}, KeepDims::no);
}
LocalTensor argmax(const LocalTensor& a, int dim, bool keepdim) {
  return index_of({"argmax", Fold::index_of_maximum}, a, {dim}, keep(keepdim));
}
LocalTensor argmin(const LocalTensor& a, int dim, bool keepdim) {
  return index_of({"argmin", Fold::index_of_minimum}, a, {dim}, keep(keepdim));
}

LocalTensor any(const LocalTensor& a, const std::vector<int>& dims, bool keepdim) {
  return truth({"any", Fold::any}, a, dims, keep(keepdim));
}
LocalTensor all(const LocalTensor& a, const std::vector<int>& dims, bool keepdim) {
  return truth({"all", Fold::all}, a, dims, keep(keepdim));
}

bool equal(const LocalTensor& a, const LocalTensor& b) {
  require_one_device("equal", a, b);
  if (a.shape() != b.shape()) return false;
  const DType dtype = promote_types(a.dtype(), b.dtype());
  const LocalTensor left = a.to(dtype);
  const LocalTensor right = b.to(dtype);
  if (!a.device().is_cpu()) {
    const LocalTensor flag = ones({1}, {DType::u8, a.device()});
    cuda::clear_if_different(flag, left, right);
    return flag.item() != 0;
  }
  std::uint8_t all_equal = 1;
  const LoopOperand operands[] = {
      {&all_equal, Strides(a.shape().size(), 0), 1}, LoopOperand::of(left), LoopOperand::of(right)};
  for_each_row(a.shape(), operands, all_equal_kernel(dtype));
  return all_equal != 0;
}

}  // namespace dtrun::tensors
