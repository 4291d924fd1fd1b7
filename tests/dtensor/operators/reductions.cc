// Reductions, and what follows one.
#include "dtensor/operators/operators.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/dtensor/ops/rows.h"

namespace dtrun::dtensor::vectors {
namespace {

using OverDims = Tensor (*)(const Tensor&, const std::vector<int>&, bool);
Operator over_dims(OverDims op) {
  return [op](const Call& c) -> Tensors { return {op(c.in(0), c.dims(), c.flag("keepdim"))}; };
}

using Spread = Tensor (*)(const Tensor&, const std::vector<int>&, double, bool);
Operator of_spread(Spread op) {
  return [op](const Call& c) -> Tensors {
    return {
        op(c.in(0), c.dims(), static_cast<double>(c.integer("correction", 1)), c.flag("keepdim"))};
  };
}

void add_folds(Operators& table) {
  table["amax"] = over_dims(amax);
  table["amin"] = over_dims(amin);
  table["any"] = over_dims(any);
  table["all"] = over_dims(all);
  table["logsumexp"] = over_dims(logsumexp);
  table["var"] = of_spread(var);
  table["std"] = of_spread(stddev);
  table["vector_norm"] = [](const Call& c) -> Tensors {
    return {norm(c.in(0), std::stod(c.text("ord")), c.dims(), c.flag("keepdim"))};
  };
  table["prod"] = [](const Call& c) -> Tensors {
    return {c.has("dim") ? prod(c.in(0), c.dim(), c.flag("keepdim")) : prod(c.in(0))};
  };
  table["cumsum"] = [](const Call& c) -> Tensors { return {cumsum(c.in(0), c.dim())}; };
  table["cumprod"] = [](const Call& c) -> Tensors { return {cumprod(c.in(0), c.dim())}; };
}

Operator extremes(Tensor (*of_all)(const Tensor&), Extremes (*along)(const Tensor&, int, bool)) {
  return [of_all, along](const Call& c) -> Tensors {
    if (!c.has("dim")) return {of_all(c.in(0))};
    const Extremes found = along(c.in(0), c.dim(), c.flag("keepdim"));
    return {found.values, found.indices};
  };
}
Operator position(Tensor (*of_all)(const Tensor&), Tensor (*along)(const Tensor&, int, bool)) {
  return [of_all, along](const Call& c) -> Tensors {
    return {c.has("dim") ? along(c.in(0), c.dim(), c.flag("keepdim")) : of_all(c.in(0))};
  };
}

void add_extremes(Operators& table) {
  table["max"] = extremes(max, max);
  table["min"] = extremes(min, min);
  table["argmax"] = position(argmax, argmax);
  table["argmin"] = position(argmin, argmin);
}

}  // namespace

void add_reductions(Operators& table) {
  table["sum"] = [](const Call& c) -> Tensors {
    return {sum(c.in(0), c.dims(), c.flag("keepdim"))};
  };
  table["mean"] = [](const Call& c) -> Tensors {
    return {mean(c.in(0), c.dims(), c.flag("keepdim"))};
  };
  table["mean_then_mul"] = [](const Call& c) -> Tensors {
    return {mean(c.in(0)) * c.number("other")};
  };
  table["sum_then_mul"] = [](const Call& c) -> Tensors {
    return {sum(c.in(0), c.dims()) * sum(c.in(1), c.dims())};
  };
  table["sum_then_add_scalar"] = [](const Call& c) -> Tensors {
    return {sum(c.in(0), c.dims()) + c.number("other")};
  };
  table["sum_then_relu"] = [](const Call& c) -> Tensors { return {relu(sum(c.in(0), c.dims()))}; };
  table["item_of_sum"] = [](const Call& c) -> Tensors {
    return {tensor_from(std::vector<double>{sum(c.in(0)).item()}, {}, c.in(0).dtype())};
  };
  table["sum_then_norm"] = [](const Call& c) -> Tensors { return {norm(sum(c.in(0), c.dims()))}; };
  table["softmax"] = [](const Call& c) -> Tensors { return {softmax(c.in(0), c.dim())}; };
  table["log_softmax"] = [](const Call& c) -> Tensors { return {log_softmax(c.in(0), c.dim())}; };
  add_folds(table);
  add_extremes(table);
}

}  // namespace dtrun::dtensor::vectors
