// Products.
#include "dtrun/dtensor/ops/products.h"
#include "dtensor/operators/operators.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/rows.h"

namespace dtrun::dtensor::vectors {
void add_products(Operators& table) {
  table["matmul"] = of_two(matmul);
  table["mm"] = of_two(mm);
  table["bmm"] = of_two(bmm);
  table["mv"] = of_two(mv);
  table["dot"] = of_two(dot);
  const auto factors = [](const Call& c) {
    return ProductSum{.beta = c.has("beta") ? c.number("beta") : Scalar(1),
                      .alpha = c.has("alpha") ? c.number("alpha") : Scalar(1)};
  };
  table["addmm"] = [factors](const Call& c) -> Tensors {
    return {addmm(c.in(0), c.in(1), c.in(2), factors(c))};
  };
  table["baddbmm"] = [factors](const Call& c) -> Tensors {
    return {baddbmm(c.in(0), c.in(1), c.in(2), factors(c))};
  };
  table["einsum"] = [](const Call& c) -> Tensors { return {einsum(c.text("equation"), c.all())}; };
  table["linear"] = [](const Call& c) -> Tensors {
    return {linear(c.in(0), c.in(1), c.all().size() > 2 ? c.in(2) : Tensor())};
  };
  table["mm_then_add_bias"] = [](const Call& c) -> Tensors {
    return {mm(c.in(0), c.in(1)) + c.in(2)};
  };
  table["mm_relu_mm"] = [](const Call& c) -> Tensors {
    return {mm(relu(mm(c.in(0), c.in(1))), c.in(2))};
  };
}

}  // namespace dtrun::dtensor::vectors
