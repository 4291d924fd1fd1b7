// Reductions, and what follows one.
#include "dtensor/operators/operators.h"
#include "dtrun/dtensor/creation.h"
#include "dtrun/dtensor/ops.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/rows.h"

namespace dtrun::dtensor::vectors {
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
  table["softmax"] = [](const Call& c) -> Tensors { return {softmax(c.in(0), c.dim())}; };
  table["log_softmax"] = [](const Call& c) -> Tensors { return {log_softmax(c.in(0), c.dim())}; };
}

}  // namespace dtrun::dtensor::vectors
