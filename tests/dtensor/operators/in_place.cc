// In-place forms, on a copy of the first input.
#include "dtensor/operators/operators.h"
#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::dtensor::vectors {
void add_in_place(Operators& table) {
  const auto on_copy = [](std::function<void(const Tensor&, const Call&)> change) -> Operator {
    return [change = std::move(change)](const Call& c) -> Tensors {
      const Tensor copy = c.in(0).clone();
      change(copy, c);
      return {copy};
    };
  };
  table["add_"] = on_copy([](const Tensor& a, const Call& c) { a.add_(c.in(1)); });
  table["sub_"] = on_copy([](const Tensor& a, const Call& c) { a.sub_(c.in(1)); });
  table["mul_"] = on_copy([](const Tensor& a, const Call& c) { a.mul_(c.in(1)); });
  table["div_"] = on_copy([](const Tensor& a, const Call& c) { a.div_(c.in(1)); });
  table["add_scalar_"] = on_copy([](const Tensor& a, const Call& c) { a.add_(c.number("other")); });
  table["mul_scalar_"] = on_copy([](const Tensor& a, const Call& c) { a.mul_(c.number("other")); });
  table["relu_"] = on_copy([](const Tensor& a, const Call&) { a.relu_(); });
  table["clamp_"] = on_copy([](const Tensor& a, const Call& c) {
    a.clamp_(c.number_or_none("min"), c.number_or_none("max"));
  });
  table["masked_fill_"] =
      on_copy([](const Tensor& a, const Call& c) { a.masked_fill_(c.in(1), c.number("value")); });
  table["copy_"] = on_copy([](const Tensor& a, const Call& c) { a.copy_(c.in(1)); });
  table["fill_"] = on_copy([](const Tensor& a, const Call& c) { a.fill_(c.number("value")); });
  table["zero_"] = on_copy([](const Tensor& a, const Call&) { a.zero_(); });
}

}  // namespace dtrun::dtensor::vectors
