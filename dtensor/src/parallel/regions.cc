#include "dtrun/dtensor/parallel/regions.h"

#include <any>
#include <numeric>
#include <string>

#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/function.h"
#include "dtrun/tensor/ops.h"
#include "move/told_calls.h"
#include "parallel/one_axis.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;

/// Where a collective runs.
struct Line {
  const char* call;
  ProcessGroup group;
  int dim = 0;
  Tensor::Site site;
};

LocalTensor summed(const LocalTensor& x, const Line& line) {
  const LocalTensor sum = x.clone();
  const ToldCalls told(line.call, line.site);
  line.group.all_reduce(sum, ReduceOp::sum, {}, line.site);
  return sum;
}

LocalTensor own_part(const LocalTensor& x, const Line& line) {
  const std::int64_t each = x.size(line.dim) / line.group.size();
  return x.narrow(line.dim, each * line.group.rank(), each).contiguous();
}

/// The first dim is the one along which parts lie in collectives.
LocalTensor turned(const LocalTensor& x, const Line& line) {
  return x.transpose(0, line.dim);
}

LocalTensor gathered(const LocalTensor& x, const Line& line) {
  const LocalTensor part = turned(x, line).contiguous();
  Shape shape = part.shape();
  shape[0] *= line.group.size();
  const LocalTensor whole = tensors::empty(shape, {x.dtype(), x.device()});
  const ToldCalls told(line.call, line.site);
  line.group.all_gather_into_tensor(whole, part, {}, line.site);
  return turned(whole, line).contiguous();
}

LocalTensor part_of_sum(const LocalTensor& x, const Line& line) {
  const LocalTensor whole = turned(x, line).contiguous();
  Shape shape = whole.shape();
  shape[0] /= line.group.size();
  const LocalTensor part = tensors::empty(shape, {x.dtype(), x.device()});
  const ToldCalls told(line.call, line.site);
  line.group.reduce_scatter_tensor(part, whole, ReduceOp::sum, {}, line.site);
  return turned(part, line).contiguous();
}

LocalTensor as_it_is(const LocalTensor& x, const Line&) {
  return x;
}

using Mapping = LocalTensor (*)(const LocalTensor& x, const Line& line);

/// One mapping forward, its opposite backward.
template <Mapping kForward, Mapping kBackward>
struct Region : autograd::Function<Region<kForward, kBackward>> {
  static Tensor forward(autograd::FunctionContext& ctx, const Tensor& x, const Line& line) {
    ctx.saved_data["line"] = line;
    return kForward(x.local(), line);
  }
  static Tensor backward(autograd::FunctionContext& ctx, const Tensor& gradient) {
    return kBackward(gradient.local(), std::any_cast<const Line&>(ctx.saved_data["line"]));
  }
};

Line line_of(const char* call, const Tensor& x, const DeviceMesh& mesh, int dim,
             const Tensor::Site& site) {
  const ProcessGroup& group = group_of_one_axis(call, mesh);
  if (x.is_distributed()) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string(call) + " of a distributed tensor, " + x.spec().to_string(),
                "a region is for plain tensors", "redistribute(), or to_local() before");
  }
  const int placed = dim < 0 ? dim + x.dim() : dim;
  if (placed < 0 || (placed >= x.dim() && x.dim() > 0)) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string(call) + " along dim " + std::to_string(dim) + " of a tensor of " +
                    std::to_string(x.dim()) + " dims",
                "the ranks' parts are joined or cut along a dim that each has",
                "a dim of the tensor");
  }
  return {call, group, placed, site};
}

/// For those that cut x.
Line dividing_line(const char* call, const Tensor& x, const DeviceMesh& mesh, int dim,
                   const Tensor::Site& site) {
  const Line line = line_of(call, x, mesh, dim, site);
  if (x.dim() > 0 && x.size(line.dim) % line.group.size() == 0) return line;
  throw Error(ErrorCode::kInvalidArgument,
              std::string(call) + " of " + tensors::shape_to_string(x.shape()) + " along dim " +
                  std::to_string(dim),
              std::to_string(line.group.size()) + " ranks do not divide it",
              "padding, or distributed tensors, whose parts may be uneven");
}

}  // namespace

Tensor copy_to_region(const Tensor& x, const DeviceMesh& mesh, Tensor::Site site) {
  return Region<as_it_is, summed>::apply(x, line_of("copy_to_region", x, mesh, 0, site));
}

Tensor reduce_from_region(const Tensor& x, const DeviceMesh& mesh, Tensor::Site site) {
  return Region<summed, as_it_is>::apply(x, line_of("reduce_from_region", x, mesh, 0, site));
}

Tensor scatter_to_region(const Tensor& x, const DeviceMesh& mesh, int dim, Tensor::Site site) {
  return Region<own_part, gathered>::apply(x,
                                           dividing_line("scatter_to_region", x, mesh, dim, site));
}

Tensor gather_from_region(const Tensor& x, const DeviceMesh& mesh, int dim, Tensor::Site site) {
  return Region<gathered, own_part>::apply(x, line_of("gather_from_region", x, mesh, dim, site));
}

Tensor reduce_scatter_to_region(const Tensor& x, const DeviceMesh& mesh, int dim,
                                Tensor::Site site) {
  return Region<part_of_sum, gathered>::apply(
      x, dividing_line("reduce_scatter_to_region", x, mesh, dim, site));
}

Tensor gather_to_region(const Tensor& x, const DeviceMesh& mesh, int dim, Tensor::Site site) {
  return Region<gathered, part_of_sum>::apply(x, line_of("gather_to_region", x, mesh, dim, site));
}

namespace {

struct Route {
  Line line;
  std::vector<std::int64_t> to, from;  ///< rows
};

LocalTensor routed(const LocalTensor& x, const Route& route) {
  Shape shape = x.shape();
  shape[0] = std::accumulate(route.from.begin(), route.from.end(), std::int64_t{0});
  const LocalTensor out = tensors::empty(shape, {x.dtype(), x.device()});
  route.line.group.all_to_all_single(out, x.contiguous(), route.from, route.to, {},
                                     route.line.site);
  return out;
}

struct AllToAllRows : autograd::Function<AllToAllRows> {
  static Tensor forward(autograd::FunctionContext& ctx, const Tensor& x, const Route& route) {
    ctx.saved_data["back"] = Route{route.line, route.from, route.to};
    return routed(x.local(), route);
  }
  static Tensor backward(autograd::FunctionContext& ctx, const Tensor& gradient) {
    return routed(gradient.local(), std::any_cast<const Route&>(ctx.saved_data["back"]));
  }
};

}  // namespace

Tensor all_to_all_rows(const Tensor& x, const std::vector<std::int64_t>& output_splits,
                       const std::vector<std::int64_t>& input_splits, const DeviceMesh& mesh,
                       Tensor::Site site) {
  const Line line = line_of("all_to_all_rows", x, mesh, 0, site);
  const auto ranks = static_cast<std::size_t>(line.group.size());
  const std::int64_t rows =
      std::accumulate(input_splits.begin(), input_splits.end(), std::int64_t{0});
  if (x.dim() == 0 || output_splits.size() != ranks || input_splits.size() != ranks ||
      rows != x.size(0)) {
    throw Error(ErrorCode::kInvalidArgument,
                "all_to_all_rows of " + tensors::shape_to_string(x.shape()) + " with splits " +
                    tensors::shape_to_string(output_splits) + " and " +
                    tensors::shape_to_string(input_splits) + " on " + std::to_string(ranks) +
                    " ranks",
                "each rank has a number in both, and input_splits count the rows of x",
                "as many numbers as ranks, and input_splits that add up to x.size(0)");
  }
  return AllToAllRows::apply(x, Route{line, input_splits, output_splits});
}

}  // namespace dtrun::dtensor
