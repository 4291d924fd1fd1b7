#include "ops/reduced_dims.h"

#include <limits>

#include "autograd/call_text.h"
#include "dispatch/result_wish.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/plan/cost.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/pointwise.h"
#include "mesh/mesh_body.h"
#include "move/cause.h"
#include "ops/named_dim.h"
#include "plan/step_cost.h"

namespace dtrun::dtensor {

using base::Error;
using base::ErrorCode;

void append_key(CallKey& key, const ReducedDims& a) {
  for (const int dim : a.dims) key.push_back(dim);
  key.push_back(static_cast<std::int64_t>(a.keep));
}

ReducedDims reduced_dims(std::string_view op, const Tensor& a, std::vector<int> dims,
                         bool keepdim) {
  const std::size_t rank = a.shape().size();
  if (dims.empty()) {
    for (std::size_t d = 0; d < rank; ++d) dims.push_back(static_cast<int>(d));
  }
  // As in PyTorch a tensor without dims may be reduced along dim 0 or -1, which it does not have.
  // normalize_dim() refuses any other dim.
  if (rank == 0) {
    for (const int dim : dims) {
      named_dim_or_only(op, a, dim);
    }
    dims.clear();
  }
  for (int& dim : dims) dim = named_dim(op, a, dim);
  std::ranges::sort(dims);
  const auto twice = std::ranges::adjacent_find(dims);
  if (twice != dims.end()) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string(op) + " was given dim " + std::to_string(*twice) + " twice",
                "a dim is reduced once, and the tensor is " + tensor_text(a),
                "each dim once; -1 is the last one");
  }
  return {std::move(dims), keepdim ? KeepDim::yes : KeepDim::no};
}

Shape reduced_shape(const Shape& shape, const ReducedDims& a) {
  Shape result;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const bool goes = a.holds(static_cast<int>(d));
    if (!goes || a.keeps()) result.push_back(goes ? 1 : shape[d]);
  }
  return result;
}

std::int64_t reduced_count(const Shape& shape, const ReducedDims& a) {
  std::int64_t count = 1;
  for (const int dim : a.dims) count *= shape[static_cast<std::size_t>(dim)];
  return count;
}

void require_some(std::string_view op, const Shape& shape, const ReducedDims& a) {
  if (reduced_count(shape, a) != 0) return;
  throw Error(ErrorCode::kInvalidArgument,
              std::string(op) + " of no elements: shape " + tensors::shape_to_string(shape),
              "an empty tensor has no such element", "another dim, or ask numel() before");
}

void require_floating(std::string_view op, DType dtype) {
  if (tensors::is_floating_point(dtype)) return;
  throw Error(
      ErrorCode::kInvalidArgument,
      std::string(op) + " does not take " + std::string(tensors::dtype_name(dtype)) + " tensors",
      "its result has a fraction", "to(DType::f32) first");
}

Rules& reduction_indices(Rules& r, const Shape& shape, const ReducedDims& a) {
  Rules::Indices output;
  for (int d = 0; d < static_cast<int>(shape.size()); ++d) {
    if (!a.holds(d)) output.push_back(d);
    if (a.holds(d) && a.keeps()) output.push_back(sharding::kBroadcast);
  }
  return r.indices({Rules::each_dim(shape)}, std::move(output));
}

void keep_reduced_whole(Rules& r, Metas in, const ReducedDims& a) {
  Rules::Indices input = Rules::each_dim(in[0].shape);
  Rules::Indices output;
  // No axis may cut a dim whose index is kBroadcast. The result has the same index for it, so that
  // operand and result are told alike.
  for (const int d : Rules::each_dim(in[0].shape)) {
    if (a.holds(d)) input[static_cast<std::size_t>(d)] = sharding::kBroadcast;
    if (!a.holds(d) || a.keeps()) output.push_back(input[static_cast<std::size_t>(d)]);
  }
  r.indices({std::move(input)}, std::move(output)).cut_all();
}

Tensor with_dims_back(const Tensor& result, const ReducedDims& a) {
  Tensor whole = result;
  if (a.keep == KeepDim::no) {
    for (const int dim : a.dims) whole = whole.unsqueeze(dim);
  }
  return whole;
}

// Several operators would each reduce the Partial operand. So it is reduced once, before them.
Tensor without_partial(const Tensor& a) {
  const Cause cause = Cause::of_operand(0);
  return without_own_partial(a);
}
Tensor without_own_partial(const Tensor& a) {
  if (!a.is_distributed()) return a;
  const Placements whole = without_partials(a.placements());
  return whole == a.placements() ? a : a.redistribute(whole, a.spec().shard_order());
}

bool is_cut_along(const Tensor& a, const ReducedDims& dims) {
  if (!a.is_distributed()) return false;
  const std::span<const int> axes = a.device_mesh().shape();
  for (std::size_t axis = 0; axis < axes.size(); ++axis) {
    const Placement& placement = a.placements()[axis];
    if (placement.is_shard() && axes[axis] > 1 && dims.holds(placement.dim())) return true;
  }
  return false;
}

bool is_cut_along(const Tensor& a, int dim) {
  return is_cut_along(a, ReducedDims{{dim}, KeepDim::yes});
}

namespace {

struct Lying {
  Placements placements;
  ShardOrder order;
};
/// How `a` lies, but for these dims, which no axis cuts.
Lying without_dims(const Tensor& a, const ReducedDims& dims) {
  Lying lying{a.placements(), a.spec().shard_order()};
  for (Placement& placement : lying.placements) {
    if (placement.is_shard() && dims.holds(placement.dim())) placement = Replicate();
  }
  for (const int dim : dims.dims) lying.order.erase(dim);
  return lying;
}

}  // namespace

Tensor whole_along(const Tensor& a, int dim) {
  const auto [placements, order] = without_dims(a, {{dim}, KeepDim::yes});
  return a.redistribute(placements, order);
}

void append_key(CallKey& key, const WholeDim& a) {
  key.push_back(a.dim);
}

Tensor joined_parts(const Tensor& a, const ReducedDims& dims, LocalTensor result) {
  const DeviceMesh mesh = a.device_mesh();
  Shape shape = a.shape();
  for (const int dim : dims.dims) shape[static_cast<std::size_t>(dim)] = result.size(dim);
  for (int dim = a.dim(); dim < result.dim(); ++dim) shape.push_back(result.size(dim));
  // The parts are equally long now, however the dim was cut before: an even cut of that many
  // elements for each rank.
  Placements placements = a.placements();
  for (std::size_t axis = 0; axis < placements.size(); ++axis) {
    Placement& placement = placements[axis];
    if (!placement.is_shard() || !dims.holds(placement.dim())) continue;
    shape[static_cast<std::size_t>(placement.dim())] *= mesh.shape()[axis];
    placement = placement.even();
  }
  const DType dtype = result.dtype();
  return Tensor(make_spec(mesh, placements, shape, dtype, a.spec().shard_order()),
                std::move(result));
}

LocalTensor parts_of_all(const Tensor& a, const ReducedDims& dims, LocalTensor result) {
  if (a.spec().is_outside()) return result;
  const Tensor joined = joined_parts(a, dims, std::move(result));
  const auto [whole, order] = without_dims(joined, dims);
  return joined.redistribute(whole, order).local();
}

GatherCost gather_cost(const Tensor& a, const ReducedDims& dims) {
  const DeviceMesh mesh = a.device_mesh();
  const Layout& layout = a.spec().layout();
  const CostModel costs{.links = mesh.body()->links};
  Layout whole = layout;
  GatherCost cost;
  double bytes_per_second = std::numeric_limits<double>::infinity();
  for (std::size_t axis = 0; axis < layout.axes(); ++axis) {
    if (!layout.is_shard(axis) || !dims.holds(layout.dim(axis))) continue;
    whole.set(axis, Replicate());
    if (mesh.shape()[axis] == 1) continue;
    cost.parts *= mesh.shape()[axis];
    cost.latency += costs.link(axis).latency;
    bytes_per_second = std::min(bytes_per_second, costs.link(axis).bytes_per_second);
  }
  const double bytes = fullest_elements(a.shape(), mesh.shape(), whole) *
                       static_cast<double>(tensors::item_size(a.dtype()));
  cost.transfer = bytes / bytes_per_second;
  return cost;
}

bool comes_sooner_whole(const Tensor& a, const ReducedDims& dims) {
  const bool wants_gradient = a.requires_grad() && Graph::is_on();
  if (!wants_gradient && !RunTwiceScope::stands()) return false;
  const GatherCost cost = gather_cost(a, dims);
  return cost.transfer < cost.latency;
}

Tensor of_rows(const Tensor& a, const ReducedDims& dims, LocalTensor result) {
  Shape shape = a.shape();
  for (const int dim : dims.dims) shape[static_cast<std::size_t>(dim)] = 1;
  const auto [whole, order] = without_dims(a, dims);
  const DType dtype = result.dtype();
  Tensor rows(make_spec(a.device_mesh(), whole, shape, dtype, order), std::move(result));
  for (std::size_t i = dims.dims.size(); !dims.keeps() && i-- > 0;)
    rows = rows.squeeze(dims.dims[i]);
  return rows;
}

Tensor lying_as(const Tensor& a, LocalTensor local) {
  const DType dtype = local.dtype();
  return Tensor(make_spec(a.device_mesh(), a.spec().layout(), a.shape(), dtype), std::move(local));
}

Tensor diagonal_like(const Tensor& a, std::int64_t n, int ones) {
  const LocalTensor numbers = tensors::arange(n, {DType::i64, a.device()});
  LocalTensor diagonal = tensors::eq(numbers.unsqueeze(1), numbers);
  for (int i = 0; i < ones; ++i) diagonal = diagonal.unsqueeze(-1);
  if (!a.is_distributed()) return Tensor(diagonal);
  return Tensor::from_local(Tensor(diagonal), a.device_mesh(),
                            Placements(a.placements().size(), Replicate()));
}

// Without dims it broadcasts to any shape, and a's dtype keeps the other operand from being
// widened.
Tensor one_of(const Tensor& a) {
  return Tensor(tensors::full({}, 1, {a.dtype(), a.device()}));
}

}  // namespace dtrun::dtensor
