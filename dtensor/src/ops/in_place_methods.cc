// In-place forms as methods.
#include "dtrun/dtensor/autograd/in_place_methods.h"

#include <functional>
#include <optional>

#include "autograd/call.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/index.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/tensor/ops.h"
#include "ops/in_place.h"

namespace dtrun::dtensor {
namespace {

using namespace in_place_steps;
using base::Error;
using base::ErrorCode;

/// Where the overwritten tensor lies.
struct Overwritten {
  Spec spec;
  Shape part;
  Device device;
};
/// Value, old -> value.
constexpr Op<None, Overwritten> kOverwrite{
    .name = "copy_",
    .meta = [](Metas in, const None&) { return in[0]; },
    .rules = [](Rules& r, Metas, const None&) { r.pointwise().cut_all(); },
    .local = [](Locals in, const None&, const Overwritten&, const Site&) { return in[0]; },
    .backward = [](const Context<None, Overwritten>& c) -> Tensors {
      if (!c.needs(1)) return {c.grad(), Tensor()};
      const Overwritten& old = c.numbers();
      if (!old.spec) return {c.grad(), tensors::zeros(old.part, {c.dtype(1), old.device})};
      const Spec spec = make_spec(old.spec.mesh(), without_partials(old.spec.layout()),
                                  old.spec.shape(), c.dtype(1));
      return {c.grad(),
              Tensor(spec, tensors::zeros(spec.local_box().shape, {c.dtype(1), old.device}))};
    }};

/// The old numbers have no part in the result; what made them has a gradient still: 0.
Tensor overwritten(const Tensor& old, const Tensor& value) {
  Tensor fitting = value.to(old.dtype());
  if (old.is_distributed() && fitting.is_distributed()) fitting = lying_as_target(old, fitting);
  const Tensor* const inputs[] = {&fitting, &old};
  return recorded(kOverwrite, std::span<const Tensor* const>(inputs), fitting.detach(), None{},
                  Overwritten{old.spec(), old.local().shape(), old.device()});
}

using OneIntoOne = Tensor (*)(const Tensor&);
using OneKernel = const LocalTensor& (*)(const LocalTensor&);
const Tensor& in_place_of_one(const char* name, const Tensor& target, OneIntoOne operation,
                              OneKernel kernel) {
  return in_place(name, target, {}, operation, kernel);
}
const Tensor& in_place_of_one(const char* name, const Tensor& target, OneIntoOne operation) {
  return in_place(name, target, {}, operation, nullptr);
}

const Tensor& in_place_of_old(const char* name, const Tensor& target,
                              const std::function<Tensor(const Tensor&)>& operation) {
  return in_place(name, target, {}, operation, nullptr);
}

using TwoIntoOne = Tensor (*)(const Tensor&, const Tensor&);
using TwoKernel = const LocalTensor& (*)(const LocalTensor&, const tensors::Operand&);
const Tensor& in_place_of_two(const char* name, const Tensor& target, const Tensor& other,
                              TwoIntoOne operation, TwoKernel kernel) {
  return in_place(
      name, target, {&other},
      [&](const Tensor& old) { return operation(old, unless_same(target, old, other)); },
      [&](const LocalTensor& part) { kernel(part, other.local()); });
}

const Tensor& in_place_of_two(const char* name, const Tensor& target, const Tensor& other,
                              TwoIntoOne operation) {
  return in_place(
      name, target, {&other},
      [&](const Tensor& old) { return operation(old, unless_same(target, old, other)); }, nullptr);
}

/// Of an operator whose result has no gradient: that of the other operand keeps nobody from it.
const Tensor& in_place_of_truths(const char* name, const Tensor& target, const Tensor& other,
                                 TwoIntoOne operation) {
  if (!other.defined() || !other.requires_grad())
    return in_place_of_two(name, target, other, operation);
  return in_place_of_two(name, target, other.detach(), operation);
}

using NumberIntoOne = Tensor (*)(const Tensor&, Scalar);
const Tensor& in_place_with_number(const char* name, const Tensor& target, Scalar number,
                                   NumberIntoOne operation, TwoKernel kernel) {
  return in_place(
      name, target, {}, [&](const Tensor& old) { return operation(old, number); },
      [&](const LocalTensor& part) { kernel(part, number); });
}

const Tensor& in_place_with_number(const char* name, const Tensor& target, Scalar number,
                                   NumberIntoOne operation) {
  return in_place_of_old(name, target, [&](const Tensor& old) { return operation(old, number); });
}

using FusedOperation = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, Scalar);
using FusedKernel = const LocalTensor& (*)(const LocalTensor&, const LocalTensor&,
                                           const LocalTensor&, Scalar);
const Tensor& in_place_fused(const char* name, const Tensor& target, const Tensor& b,
                             const Tensor& c, Scalar value, FusedOperation operation,
                             FusedKernel kernel) {
  return in_place(
      name, target, {&b, &c},
      [&](const Tensor& old) {
        return operation(old, unless_same(target, old, b), unless_same(target, old, c), value);
      },
      [&](const LocalTensor& part) { kernel(part, b.local(), c.local(), value); });
}

std::optional<tensors::Operand> bound_operand(const std::optional<Scalar>& number) {
  return number ? std::optional<tensors::Operand>(*number) : std::nullopt;
}

/// A local number as all elements of a tensor of target's shape, whole on every rank of its mesh.
Tensor everywhere(const Tensor& number, const Tensor& target) {
  const Placements replicated(target.placements().size(), Replicate());
  return Tensor::from_local(number.reshape({}).to(target.device()).to(target.dtype()),
                            target.device_mesh(), replicated)
      .expand(target.shape());
}

const Tensor& copy_into(const Tensor& target, const Tensor& source) {
  check_writable("copy_", target);
  check_not_shared("copy_", target, source);
  if (!target.is_distributed() || source.is_distributed()) {
    const Tensor whole = source.expand(target.shape());
    if (!needs_graph(target, {})) return assign(target, whole);
    return assign(target, overwritten(as_it_was(target, {}), whole));
  }
  if (source.numel() == 1) {
    const Tensor whole = everywhere(source, target);
    if (!needs_graph(target, {})) return assign(target, whole);
    return assign(target, overwritten(as_it_was(target, {}), whole));
  }
  throw Error(ErrorCode::kInvalidArgument,
              "copy_ of a local tensor of shape " + tensors::shape_to_string(source.shape()) +
                  " into " + target.spec().to_string(),
              "a local tensor of many elements has no place in it", "distribute_tensor() it");
}

const Tensor& fill_all(const Tensor& target, Scalar value) {
  check_writable("fill_", target);
  if (needs_graph(target, {})) {
    const Tensor number = tensors::full({}, value, {target.dtype(), target.device()});
    const Tensor all =
        target.is_distributed() ? everywhere(number, target) : number.expand(target.shape());
    return assign(target, overwritten(as_it_was(target, {}), all));
  }
  if (!is_to_be_written(target)) return target;
  target.local().storage()->count_write();
  if (target.is_distributed() && without_partials(target.placements()) != target.placements()) {
    // The parts make up the value.
    const NoGrad no_grad;
    const Tensor number = tensors::full({}, value, {target.dtype(), target.device()});
    target.local().copy_(everywhere(number, target)
                             .redistribute(target.placements(), target.spec().shard_order())
                             .local());
  } else {
    target.local().fill_(value);
  }
  return target;
}

}  // namespace

const Tensor& InPlaceMethods::self() const {
  return static_cast<const Tensor&>(*this);
}

const Tensor& InPlaceMethods::add_(const Tensor& other) const {
  return in_place_of_two("add_", self(), other, dtensor::add, tensors::add_);
}
const Tensor& InPlaceMethods::add_(Scalar other) const {
  return in_place_with_number("add_", self(), other, dtensor::add, tensors::add_);
}
const Tensor& InPlaceMethods::sub_(const Tensor& other) const {
  return in_place_of_two("sub_", self(), other, dtensor::sub, tensors::sub_);
}
const Tensor& InPlaceMethods::sub_(Scalar other) const {
  return in_place_with_number("sub_", self(), other, dtensor::sub, tensors::sub_);
}
const Tensor& InPlaceMethods::mul_(const Tensor& other) const {
  return in_place_of_two("mul_", self(), other, dtensor::mul, tensors::mul_);
}
const Tensor& InPlaceMethods::mul_(Scalar other) const {
  return in_place_with_number("mul_", self(), other, dtensor::mul, tensors::mul_);
}
const Tensor& InPlaceMethods::div_(const Tensor& other) const {
  return in_place_of_two("div_", self(), other, dtensor::div, tensors::div_);
}
const Tensor& InPlaceMethods::div_(Scalar other) const {
  return in_place_with_number("div_", self(), other, dtensor::div, tensors::div_);
}
const Tensor& InPlaceMethods::pow_(const Tensor& other) const {
  return in_place_of_two("pow_", self(), other, dtensor::pow, tensors::pow_);
}
const Tensor& InPlaceMethods::pow_(Scalar other) const {
  return in_place_with_number("pow_", self(), other, dtensor::pow, tensors::pow_);
}
const Tensor& InPlaceMethods::add_(const Tensor& other, Scalar alpha) const {
  return in_place(
      "add_", self(), {&other},
      [&](const Tensor& old) {
        return dtensor::add(old, dtensor::mul(unless_same(self(), old, other), alpha));
      },
      nullptr);
}
const Tensor& InPlaceMethods::sub_(const Tensor& other, Scalar alpha) const {
  return in_place(
      "sub_", self(), {&other},
      [&](const Tensor& old) {
        return dtensor::sub(old, dtensor::mul(unless_same(self(), old, other), alpha));
      },
      nullptr);
}

const Tensor& InPlaceMethods::neg_() const {
  return in_place_of_one("neg_", self(), dtensor::neg, tensors::neg_);
}
const Tensor& InPlaceMethods::abs_() const {
  return in_place_of_one("abs_", self(), dtensor::abs, tensors::abs_);
}
const Tensor& InPlaceMethods::exp_() const {
  return in_place_of_one("exp_", self(), dtensor::exp, tensors::exp_);
}
const Tensor& InPlaceMethods::log_() const {
  return in_place_of_one("log_", self(), dtensor::log, tensors::log_);
}
const Tensor& InPlaceMethods::sqrt_() const {
  return in_place_of_one("sqrt_", self(), dtensor::sqrt, tensors::sqrt_);
}
const Tensor& InPlaceMethods::rsqrt_() const {
  return in_place_of_one("rsqrt_", self(), dtensor::rsqrt, tensors::rsqrt_);
}
const Tensor& InPlaceMethods::reciprocal_() const {
  return in_place_of_one("reciprocal_", self(), dtensor::reciprocal, tensors::reciprocal_);
}
const Tensor& InPlaceMethods::sigmoid_() const {
  return in_place_of_one("sigmoid_", self(), dtensor::sigmoid, tensors::sigmoid_);
}
const Tensor& InPlaceMethods::tanh_() const {
  return in_place_of_one("tanh_", self(), dtensor::tanh, tensors::tanh_);
}
const Tensor& InPlaceMethods::relu_() const {
  return in_place_of_one("relu_", self(), dtensor::relu, tensors::relu_);
}
const Tensor& InPlaceMethods::floor_() const {
  return in_place_of_one("floor_", self(), dtensor::floor);
}
const Tensor& InPlaceMethods::ceil_() const {
  return in_place_of_one("ceil_", self(), dtensor::ceil);
}
const Tensor& InPlaceMethods::round_() const {
  return in_place_of_one("round_", self(), dtensor::round);
}
const Tensor& InPlaceMethods::round_(int decimals) const {
  return in_place_of_old("round_", self(),
                         [&](const Tensor& old) { return dtensor::round(old, decimals); });
}
const Tensor& InPlaceMethods::trunc_() const {
  return in_place_of_one("trunc_", self(), dtensor::trunc);
}
const Tensor& InPlaceMethods::floor_divide_(const Tensor& other) const {
  return in_place_of_two("floor_divide_", self(), other, dtensor::floor_divide,
                         tensors::floor_divide_);
}
const Tensor& InPlaceMethods::floor_divide_(Scalar other) const {
  return in_place_with_number("floor_divide_", self(), other, dtensor::floor_divide,
                              tensors::floor_divide_);
}
const Tensor& InPlaceMethods::remainder_(const Tensor& other) const {
  return in_place_of_two("remainder_", self(), other, dtensor::remainder, tensors::remainder_);
}
const Tensor& InPlaceMethods::remainder_(Scalar other) const {
  return in_place_with_number("remainder_", self(), other, dtensor::remainder, tensors::remainder_);
}
const Tensor& InPlaceMethods::fmod_(const Tensor& other) const {
  return in_place_of_two("fmod_", self(), other, dtensor::fmod, tensors::fmod_);
}
const Tensor& InPlaceMethods::fmod_(Scalar other) const {
  return in_place_with_number("fmod_", self(), other, dtensor::fmod, tensors::fmod_);
}
const Tensor& InPlaceMethods::bitwise_and_(const Tensor& other) const {
  return in_place_of_two("bitwise_and_", self(), other, dtensor::bitwise_and);
}
const Tensor& InPlaceMethods::bitwise_and_(Scalar other) const {
  return in_place_with_number("bitwise_and_", self(), other, dtensor::bitwise_and);
}
const Tensor& InPlaceMethods::bitwise_or_(const Tensor& other) const {
  return in_place_of_two("bitwise_or_", self(), other, dtensor::bitwise_or);
}
const Tensor& InPlaceMethods::bitwise_or_(Scalar other) const {
  return in_place_with_number("bitwise_or_", self(), other, dtensor::bitwise_or);
}
const Tensor& InPlaceMethods::bitwise_xor_(const Tensor& other) const {
  return in_place_of_two("bitwise_xor_", self(), other, dtensor::bitwise_xor);
}
const Tensor& InPlaceMethods::bitwise_xor_(Scalar other) const {
  return in_place_with_number("bitwise_xor_", self(), other, dtensor::bitwise_xor);
}
const Tensor& InPlaceMethods::bitwise_left_shift_(const Tensor& other) const {
  return in_place_of_two("bitwise_left_shift_", self(), other, dtensor::bitwise_left_shift);
}
const Tensor& InPlaceMethods::bitwise_left_shift_(Scalar other) const {
  return in_place_with_number("bitwise_left_shift_", self(), other, dtensor::bitwise_left_shift);
}
const Tensor& InPlaceMethods::bitwise_right_shift_(const Tensor& other) const {
  return in_place_of_two("bitwise_right_shift_", self(), other, dtensor::bitwise_right_shift);
}
const Tensor& InPlaceMethods::bitwise_right_shift_(Scalar other) const {
  return in_place_with_number("bitwise_right_shift_", self(), other, dtensor::bitwise_right_shift);
}
const Tensor& InPlaceMethods::logical_and_(const Tensor& other) const {
  return in_place_of_truths("logical_and_", self(), other, dtensor::logical_and);
}
const Tensor& InPlaceMethods::logical_and_(Scalar other) const {
  return in_place_with_number("logical_and_", self(), other, dtensor::logical_and);
}
const Tensor& InPlaceMethods::logical_or_(const Tensor& other) const {
  return in_place_of_truths("logical_or_", self(), other, dtensor::logical_or);
}
const Tensor& InPlaceMethods::logical_or_(Scalar other) const {
  return in_place_with_number("logical_or_", self(), other, dtensor::logical_or);
}
const Tensor& InPlaceMethods::logical_xor_(const Tensor& other) const {
  return in_place_of_truths("logical_xor_", self(), other, dtensor::logical_xor);
}
const Tensor& InPlaceMethods::logical_xor_(Scalar other) const {
  return in_place_with_number("logical_xor_", self(), other, dtensor::logical_xor);
}
const Tensor& InPlaceMethods::eq_(const Tensor& other) const {
  return in_place_of_truths("eq_", self(), other, dtensor::eq);
}
const Tensor& InPlaceMethods::eq_(Scalar other) const {
  return in_place_with_number("eq_", self(), other, dtensor::eq);
}
const Tensor& InPlaceMethods::ne_(const Tensor& other) const {
  return in_place_of_truths("ne_", self(), other, dtensor::ne);
}
const Tensor& InPlaceMethods::ne_(Scalar other) const {
  return in_place_with_number("ne_", self(), other, dtensor::ne);
}
const Tensor& InPlaceMethods::lt_(const Tensor& other) const {
  return in_place_of_truths("lt_", self(), other, dtensor::lt);
}
const Tensor& InPlaceMethods::lt_(Scalar other) const {
  return in_place_with_number("lt_", self(), other, dtensor::lt);
}
const Tensor& InPlaceMethods::le_(const Tensor& other) const {
  return in_place_of_truths("le_", self(), other, dtensor::le);
}
const Tensor& InPlaceMethods::le_(Scalar other) const {
  return in_place_with_number("le_", self(), other, dtensor::le);
}
const Tensor& InPlaceMethods::gt_(const Tensor& other) const {
  return in_place_of_truths("gt_", self(), other, dtensor::gt);
}
const Tensor& InPlaceMethods::gt_(Scalar other) const {
  return in_place_with_number("gt_", self(), other, dtensor::gt);
}
const Tensor& InPlaceMethods::ge_(const Tensor& other) const {
  return in_place_of_truths("ge_", self(), other, dtensor::ge);
}
const Tensor& InPlaceMethods::ge_(Scalar other) const {
  return in_place_with_number("ge_", self(), other, dtensor::ge);
}
const Tensor& InPlaceMethods::atan2_(const Tensor& other) const {
  return in_place_of_two("atan2_", self(), other, dtensor::atan2);
}
const Tensor& InPlaceMethods::square_() const {
  return in_place_of_one("square_", self(), dtensor::square);
}
const Tensor& InPlaceMethods::sign_() const {
  return in_place_of_one("sign_", self(), dtensor::sign);
}
const Tensor& InPlaceMethods::sin_() const {
  return in_place_of_one("sin_", self(), dtensor::sin);
}
const Tensor& InPlaceMethods::cos_() const {
  return in_place_of_one("cos_", self(), dtensor::cos);
}
const Tensor& InPlaceMethods::tan_() const {
  return in_place_of_one("tan_", self(), dtensor::tan);
}
const Tensor& InPlaceMethods::sinh_() const {
  return in_place_of_one("sinh_", self(), dtensor::sinh);
}
const Tensor& InPlaceMethods::cosh_() const {
  return in_place_of_one("cosh_", self(), dtensor::cosh);
}
const Tensor& InPlaceMethods::asin_() const {
  return in_place_of_one("asin_", self(), dtensor::asin);
}
const Tensor& InPlaceMethods::acos_() const {
  return in_place_of_one("acos_", self(), dtensor::acos);
}
const Tensor& InPlaceMethods::atan_() const {
  return in_place_of_one("atan_", self(), dtensor::atan);
}
const Tensor& InPlaceMethods::asinh_() const {
  return in_place_of_one("asinh_", self(), dtensor::asinh);
}
const Tensor& InPlaceMethods::acosh_() const {
  return in_place_of_one("acosh_", self(), dtensor::acosh);
}
const Tensor& InPlaceMethods::atanh_() const {
  return in_place_of_one("atanh_", self(), dtensor::atanh);
}
const Tensor& InPlaceMethods::erf_() const {
  return in_place_of_one("erf_", self(), dtensor::erf);
}
const Tensor& InPlaceMethods::erfc_() const {
  return in_place_of_one("erfc_", self(), dtensor::erfc);
}
const Tensor& InPlaceMethods::log2_() const {
  return in_place_of_one("log2_", self(), dtensor::log2);
}
const Tensor& InPlaceMethods::log10_() const {
  return in_place_of_one("log10_", self(), dtensor::log10);
}
const Tensor& InPlaceMethods::log1p_() const {
  return in_place_of_one("log1p_", self(), dtensor::log1p);
}
const Tensor& InPlaceMethods::expm1_() const {
  return in_place_of_one("expm1_", self(), dtensor::expm1);
}
const Tensor& InPlaceMethods::logical_not_() const {
  return in_place_of_one("logical_not_", self(), dtensor::logical_not);
}
const Tensor& InPlaceMethods::bitwise_not_() const {
  return in_place_of_one("bitwise_not_", self(), dtensor::bitwise_not);
}
const Tensor& InPlaceMethods::tril_(std::int64_t diagonal) const {
  return in_place_of_old("tril_", self(),
                         [&](const Tensor& old) { return dtensor::tril(old, diagonal); });
}
const Tensor& InPlaceMethods::triu_(std::int64_t diagonal) const {
  return in_place_of_old("triu_", self(),
                         [&](const Tensor& old) { return dtensor::triu(old, diagonal); });
}
const Tensor& InPlaceMethods::cumsum_(int dim) const {
  return in_place_of_old("cumsum_", self(),
                         [&](const Tensor& old) { return dtensor::cumsum(old, dim); });
}
const Tensor& InPlaceMethods::cumprod_(int dim) const {
  return in_place_of_old("cumprod_", self(),
                         [&](const Tensor& old) { return dtensor::cumprod(old, dim); });
}
const Tensor& InPlaceMethods::index_add_(int dim, const Tensor& index, const Tensor& source,
                                         Scalar alpha) const {
  return in_place(
      "index_add_", self(), {&index, &source},
      [&](const Tensor& old) {
        return dtensor::index_add(old, dim, index, unless_same(self(), old, source), alpha);
      },
      nullptr);
}
const Tensor& InPlaceMethods::scatter_(int dim, const Tensor& index, const Tensor& source) const {
  return in_place(
      "scatter_", self(), {&index, &source},
      [&](const Tensor& old) {
        return dtensor::scatter(old, dim, index, unless_same(self(), old, source));
      },
      nullptr);
}
const Tensor& InPlaceMethods::scatter_add_(int dim, const Tensor& index,
                                           const Tensor& source) const {
  return in_place(
      "scatter_add_", self(), {&index, &source},
      [&](const Tensor& old) {
        return dtensor::scatter_add(old, dim, index, unless_same(self(), old, source));
      },
      nullptr);
}
const Tensor& InPlaceMethods::scatter_(int dim, const Tensor& index, Scalar value) const {
  return in_place(
      "scatter_", self(), {&index},
      [&](const Tensor& old) { return dtensor::scatter(old, dim, index, value); }, nullptr);
}
const Tensor& InPlaceMethods::scatter_(int dim, const Tensor& index, const Tensor& source,
                                       ScatterReduce reduce) const {
  return in_place(
      "scatter_", self(), {&index, &source},
      [&](const Tensor& old) {
        return dtensor::scatter(old, dim, index, unless_same(self(), old, source), reduce);
      },
      nullptr);
}
const Tensor& InPlaceMethods::scatter_(int dim, const Tensor& index, Scalar value,
                                       ScatterReduce reduce) const {
  return in_place(
      "scatter_", self(), {&index},
      [&](const Tensor& old) { return dtensor::scatter(old, dim, index, value, reduce); }, nullptr);
}
const Tensor& InPlaceMethods::scatter_reduce_(int dim, const Tensor& index, const Tensor& source,
                                              ScatterReduce reduce,
                                              IncludeSelf include_self) const {
  return in_place(
      "scatter_reduce_", self(), {&index, &source},
      [&](const Tensor& old) {
        return dtensor::scatter_reduce(old, dim, index, unless_same(self(), old, source), reduce,
                                       include_self);
      },
      nullptr);
}
const Tensor& InPlaceMethods::index_put_(const Tensors& positions, const Tensor& values,
                                         PutMode mode) const {
  const auto put = [&](const Tensor& old) {
    return dtensor::index_put(old, positions, unless_same(self(), old, values), mode);
  };
  return named_call("index_put_",
                    {{"tensor", self()}, {"positions", positions}, {"values", values}},
                    [&]() -> const Tensor& {
                      return write_in_place("index_put_", self(), {&values}, put, nullptr);
                    });
}

const Tensor& InPlaceMethods::clamp_(std::optional<Scalar> low, std::optional<Scalar> high) const {
  return in_place(
      "clamp_", self(), {}, [&](const Tensor& old) { return dtensor::clamp(old, low, high); },
      [&](const LocalTensor& part) {
        tensors::clamp_(part, bound_operand(low), bound_operand(high));
      });
}
const Tensor& InPlaceMethods::clamp_(const Tensor& low, const Tensor& high) const {
  const auto clamped = [&](const Tensor& old) {
    const auto bound = [&](const Tensor& given) {
      return given.defined() ? unless_same(self(), old, given) : given;
    };
    return dtensor::clamp(old, bound(low), bound(high));
  };
  if (!high.defined() && !low.defined()) return in_place("clamp_", self(), {}, clamped, nullptr);
  if (!high.defined()) return in_place("clamp_", self(), {&low}, clamped, nullptr);
  if (!low.defined()) return in_place("clamp_", self(), {&high}, clamped, nullptr);
  return in_place("clamp_", self(), {&low, &high}, clamped, [&](const LocalTensor& part) {
    tensors::clamp_(part, low.local(), high.local());
  });
}
const Tensor& InPlaceMethods::masked_fill_(const Tensor& mask, Scalar value) const {
  return in_place(
      "masked_fill_", self(), {&mask},
      [&](const Tensor& old) {
        return dtensor::masked_fill(old, unless_same(self(), old, mask), value);
      },
      nullptr);
}
const Tensor& InPlaceMethods::addcmul_(const Tensor& b, const Tensor& c, Scalar value) const {
  return in_place_fused("addcmul_", self(), b, c, value, dtensor::addcmul, tensors::addcmul_);
}
const Tensor& InPlaceMethods::addcdiv_(const Tensor& b, const Tensor& c, Scalar value) const {
  return in_place_fused("addcdiv_", self(), b, c, value, dtensor::addcdiv, tensors::addcdiv_);
}
const Tensor& InPlaceMethods::lerp_(const Tensor& end, Scalar weight) const {
  return in_place(
      "lerp_", self(), {&end},
      [&](const Tensor& old) { return dtensor::lerp(old, unless_same(self(), old, end), weight); },
      [&](const LocalTensor& part) { tensors::lerp_(part, end.local(), weight); });
}
const Tensor& InPlaceMethods::lerp_(const Tensor& end, const Tensor& weight) const {
  return in_place(
      "lerp_", self(), {&end, &weight},
      [&](const Tensor& old) {
        return dtensor::lerp(old, unless_same(self(), old, end), unless_same(self(), old, weight));
      },
      [&](const LocalTensor& part) { tensors::lerp_(part, end.local(), weight.local()); });
}

const Tensor& InPlaceMethods::copy_(const Tensor& source) const {
  return named_call("copy_", {{"tensor", self()}, {"source", source}},
                    [&]() -> const Tensor& { return copy_into(self(), source); });
}

const Tensor& InPlaceMethods::fill_(Scalar value) const {
  return named_call("fill_", {{"tensor", self()}},
                    [&]() -> const Tensor& { return fill_all(self(), value); });
}

}  // namespace dtrun::dtensor
