// In-place forms: the operator's new tensor, written over the old elements; in the graph the tensor
// becomes what the operator made. Where no gradient is wanted and all lie alike, the kernel writes
// the elements itself: so do the steps of optimizers.
#include <algorithm>
#include <initializer_list>
#include <optional>
#include <type_traits>

#include "autograd/call.h"
#include "dispatch/dispatch.h"
#include "dispatch/result_wish.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/own_storages.h"
#include "move/cause.h"
#include "move/move_observer.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;

bool is_outside(const Tensor& tensor) {
  return tensor.is_distributed() && tensor.spec().is_outside();
}

/// What a checkpoint() around this call has not made would be changed once more by its backward.
void check_not_run_twice(const char* op, const Tensor& target) {
  if (is_outside(target) || !tensors::OwnStorages::lack(*target.local().storage())) return;
  throw Error(ErrorCode::kInvalidArgument,
              std::string(op) + " within checkpoint() on a tensor of shape " +
                  tensors::shape_to_string(target.shape()) + " that was made before it",
              "backward runs the function again, and would change the tensor a second time",
              "the form that makes a new tensor, or clone() it within the function");
}

void check_writable(const char* op, const Tensor& target) {
  check_not_run_twice(op, target);
  if (!target.requires_grad() || !Graph::is_on()) return;
  if (target.is_leaf()) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string(op) + " on a leaf that requires a gradient, of shape " +
                    tensors::shape_to_string(target.shape()),
                "its gradient would be that of numbers that are gone",
                "within NoGrad, or the form that makes a new tensor");
  }
  if (Graph::is_view(target)) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string(op) + " on a view that requires a gradient, of shape " +
                    tensors::shape_to_string(target.shape()),
                "the tensor that it shows would change behind its gradient's back",
                "clone() the view, or the form that makes a new tensor");
  }
}

/// A value that wants a gradient is about to be written to elements that others show as well.
void check_not_shared(const char* op, const Tensor& target, const Tensor& value) {
  if (!Graph::is_on() || !value.requires_grad()) return;
  if (target.requires_grad() || target.local().storage()->owners() == 1) return;
  throw Error(ErrorCode::kInvalidArgument,
              std::string(op) + " of a tensor that requires a gradient into one of shape " +
                  tensors::shape_to_string(target.shape()) + " that shares its elements",
              "the tensors that share them would have the numbers and no gradient",
              "cat() or stack() the parts, or detach() the value");
}

/// What an operator reads besides the tensor that it writes.
using Others = std::initializer_list<const Tensor*>;

bool wants_gradient(const Tensor& target, Others others) {
  if (!Graph::is_on()) return false;
  const auto wants = [](const Tensor* other) { return other->requires_grad(); };
  return target.requires_grad() || std::any_of(others.begin(), others.end(), wants);
}

/// The numbers of `target` as they are, for an operator whose gradient may want them.
Tensor as_it_was(const Tensor& target, Others others) {
  if (!wants_gradient(target, others)) return target.detach();
  const LocalTensor copy = target.local().clone();
  const Tensor old = target.is_distributed() ? Tensor(target.spec(), copy) : Tensor(copy);
  Graph::set_producer(old, Graph::producer(target), Graph::output(target));
  return old;
}

/// Every rank's part of the result comes from its parts of all of them, is of their dtype, and
/// nobody asks how it came about: so the kernel may write it where it belongs.
bool is_in_step(const Tensor& target, Others others) {
  if (wants_gradient(target, others) || !tensors::is_floating_point(target.dtype())) return false;
  if (target.is_distributed() && without_partials(target.placements()) != target.placements())
    return false;
  return std::all_of(others.begin(), others.end(), [&](const Tensor* other) {
    if (other->is_distributed() != target.is_distributed()) return false;
    return target.is_distributed()
               ? other->spec() == target.spec()
               : other->dtype() == target.dtype() && other->device() == target.device() &&
                     other->shape() == target.shape();
  });
}

void check_result(const char* op, const Tensor& target, const Tensor& result) {
  const bool loses_fraction =
      tensors::is_floating_point(result.dtype()) && !tensors::is_floating_point(target.dtype());
  const bool loses_number = result.dtype() != DType::boolean && target.dtype() == DType::boolean;
  if (result.shape() == target.shape() && !loses_fraction && !loses_number) return;
  throw Error(ErrorCode::kInvalidArgument,
              std::string(op) + " on a tensor of " +
                  std::string(tensors::dtype_short_name(target.dtype())) +
                  tensors::shape_to_string(target.shape()) + " gives " +
                  std::string(tensors::dtype_short_name(result.dtype())) +
                  tensors::shape_to_string(result.shape()),
              "which does not fit into it", "the form that makes a new tensor");
}

/// retain_grad() was said of the tensor, not of what made its numbers before.
void move_producer(const Tensor& target, const Tensor& result) {
  const base::Counted<Node> before = Graph::producer(target);
  const std::uint32_t output = Graph::output(target);
  Graph::set_producer(target, Graph::producer(result), Graph::output(result));
  if (!before || !before->keeps_gradient(output) || !target.requires_grad()) return;
  before->stop_keeping(output);
  target.retain_grad();
}

const Tensor& assign(const Tensor& target, const Tensor& result) {
  const Cause cause("an operator in place", Cause::Wish::implied);
  Tensor fitting = result.to(target.dtype());
  // A local target holds all of it, and every rank's the same.
  if (!target.is_distributed() && fitting.is_distributed()) fitting = fitting.full_tensor();
  if (target.is_distributed()) {
    fitting = fitting.redistribute(target.placements(), target.spec().shard_order());
  }
  if (MoveObserver::rehearsing() || is_outside(target)) return target;
  target.local().storage()->count_write();
  target.local().copy_(fitting.local());
  if (Graph::is_on()) move_producer(target, fitting);
  return target;
}

/// Calls the operation, whose result is to lie as the target does.
template <typename Operation>
Tensor wishing_for(const Tensor& target, Operation operation) {
  std::optional<ResultWish> wish;
  if (target.is_distributed())
    wish = ResultWish{target.device_mesh(), target.placements(), ResultWish::Of::call_in_place};
  const ResultWishScope scope(std::move(wish));
  return operation();
}

/// @param operation of the tensor as it was and the others @param kernel of the parts, in place; it
/// is called where the parts are enough; nullptr: there is none
template <typename Operation, typename Kernel>
const Tensor& in_place(const char* name, const Tensor& target, Others others, Operation operation,
                       Kernel kernel) {
  for (const Tensor* other : others) {
    if (!other->defined()) refuse_undefined(name, 1);
  }
  check_writable(name, target);
  for (const Tensor* other : others) check_not_shared(name, target, *other);
  if constexpr (!std::is_null_pointer_v<Kernel>) {
    if (is_in_step(target, others)) {
      if (!MoveObserver::rehearsing() && !is_outside(target)) kernel(target.local());
      return target;
    }
  }
  const Tensor old = as_it_was(target, others);
  const Tensor result = wishing_for(target, [&] { return operation(old); });
  check_result(name, target, result);
  return assign(target, result);
}

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
  if (old.is_distributed() && fitting.is_distributed())
    fitting = fitting.redistribute(old.placements(), old.spec().shard_order());
  const Tensor* const inputs[] = {&fitting, &old};
  return recorded(kOverwrite, std::span<const Tensor* const>(inputs), fitting.detach(), None{},
                  Overwritten{old.spec(), old.local().shape(), old.device()});
}

/// An operand that is the target itself is read as it was.
const Tensor& unless_same(const Tensor& target, const Tensor& old, const Tensor& other) {
  return same(target, other) ? old : other;
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

using TwoIntoOne = Tensor (*)(const Tensor&, const Tensor&);
using TwoKernel = const LocalTensor& (*)(const LocalTensor&, const tensors::Operand&);
const Tensor& in_place_of_two(const char* name, const Tensor& target, const Tensor& other,
                              TwoIntoOne operation, TwoKernel kernel) {
  return in_place(
      name, target, {&other},
      [&](const Tensor& old) { return operation(old, unless_same(target, old, other)); },
      [&](const LocalTensor& part) { kernel(part, other.local()); });
}

using NumberIntoOne = Tensor (*)(const Tensor&, Scalar);
const Tensor& in_place_with_number(const char* name, const Tensor& target, Scalar number,
                                   NumberIntoOne operation, TwoKernel kernel) {
  return in_place(
      name, target, {}, [&](const Tensor& old) { return operation(old, number); },
      [&](const LocalTensor& part) { kernel(part, number); });
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

}  // namespace

const Tensor& Tensor::add_(const Tensor& other) const {
  return in_place_of_two("add_", *this, other, dtensor::add, tensors::add_);
}
const Tensor& Tensor::add_(Scalar other) const {
  return in_place_with_number("add_", *this, other, dtensor::add, tensors::add_);
}
const Tensor& Tensor::sub_(const Tensor& other) const {
  return in_place_of_two("sub_", *this, other, dtensor::sub, tensors::sub_);
}
const Tensor& Tensor::sub_(Scalar other) const {
  return in_place_with_number("sub_", *this, other, dtensor::sub, tensors::sub_);
}
const Tensor& Tensor::mul_(const Tensor& other) const {
  return in_place_of_two("mul_", *this, other, dtensor::mul, tensors::mul_);
}
const Tensor& Tensor::mul_(Scalar other) const {
  return in_place_with_number("mul_", *this, other, dtensor::mul, tensors::mul_);
}
const Tensor& Tensor::div_(const Tensor& other) const {
  return in_place_of_two("div_", *this, other, dtensor::div, tensors::div_);
}
const Tensor& Tensor::div_(Scalar other) const {
  return in_place_with_number("div_", *this, other, dtensor::div, tensors::div_);
}
const Tensor& Tensor::pow_(const Tensor& other) const {
  return in_place_of_two("pow_", *this, other, dtensor::pow, tensors::pow_);
}
const Tensor& Tensor::pow_(Scalar other) const {
  return in_place_with_number("pow_", *this, other, dtensor::pow, tensors::pow_);
}
const Tensor& Tensor::add_(const Tensor& other, Scalar alpha) const {
  return in_place(
      "add_", *this, {&other},
      [&](const Tensor& old) {
        return dtensor::add(old, dtensor::mul(unless_same(*this, old, other), alpha));
      },
      nullptr);
}
const Tensor& Tensor::sub_(const Tensor& other, Scalar alpha) const {
  return in_place(
      "sub_", *this, {&other},
      [&](const Tensor& old) {
        return dtensor::sub(old, dtensor::mul(unless_same(*this, old, other), alpha));
      },
      nullptr);
}

const Tensor& Tensor::neg_() const {
  return in_place_of_one("neg_", *this, dtensor::neg, tensors::neg_);
}
const Tensor& Tensor::abs_() const {
  return in_place_of_one("abs_", *this, dtensor::abs, tensors::abs_);
}
const Tensor& Tensor::exp_() const {
  return in_place_of_one("exp_", *this, dtensor::exp, tensors::exp_);
}
const Tensor& Tensor::log_() const {
  return in_place_of_one("log_", *this, dtensor::log, tensors::log_);
}
const Tensor& Tensor::sqrt_() const {
  return in_place_of_one("sqrt_", *this, dtensor::sqrt, tensors::sqrt_);
}
const Tensor& Tensor::rsqrt_() const {
  return in_place_of_one("rsqrt_", *this, dtensor::rsqrt, tensors::rsqrt_);
}
const Tensor& Tensor::reciprocal_() const {
  return in_place_of_one("reciprocal_", *this, dtensor::reciprocal, tensors::reciprocal_);
}
const Tensor& Tensor::sigmoid_() const {
  return in_place_of_one("sigmoid_", *this, dtensor::sigmoid, tensors::sigmoid_);
}
const Tensor& Tensor::tanh_() const {
  return in_place_of_one("tanh_", *this, dtensor::tanh, tensors::tanh_);
}
const Tensor& Tensor::relu_() const {
  return in_place_of_one("relu_", *this, dtensor::relu, tensors::relu_);
}
const Tensor& Tensor::floor_() const {
  return in_place_of_one("floor_", *this, dtensor::floor);
}
const Tensor& Tensor::ceil_() const {
  return in_place_of_one("ceil_", *this, dtensor::ceil);
}
const Tensor& Tensor::round_() const {
  return in_place_of_one("round_", *this, dtensor::round);
}
const Tensor& Tensor::trunc_() const {
  return in_place_of_one("trunc_", *this, dtensor::trunc);
}

const Tensor& Tensor::clamp_(std::optional<Scalar> low, std::optional<Scalar> high) const {
  return in_place(
      "clamp_", *this, {}, [&](const Tensor& old) { return dtensor::clamp(old, low, high); },
      [&](const LocalTensor& part) {
        tensors::clamp_(part, bound_operand(low), bound_operand(high));
      });
}
const Tensor& Tensor::masked_fill_(const Tensor& mask, Scalar value) const {
  return in_place(
      "masked_fill_", *this, {&mask},
      [&](const Tensor& old) {
        return dtensor::masked_fill(old, unless_same(*this, old, mask), value);
      },
      nullptr);
}
const Tensor& Tensor::addcmul_(const Tensor& b, const Tensor& c, Scalar value) const {
  return in_place_fused("addcmul_", *this, b, c, value, dtensor::addcmul, tensors::addcmul_);
}
const Tensor& Tensor::addcdiv_(const Tensor& b, const Tensor& c, Scalar value) const {
  return in_place_fused("addcdiv_", *this, b, c, value, dtensor::addcdiv, tensors::addcdiv_);
}
const Tensor& Tensor::lerp_(const Tensor& end, Scalar weight) const {
  return in_place(
      "lerp_", *this, {&end},
      [&](const Tensor& old) { return dtensor::lerp(old, unless_same(*this, old, end), weight); },
      [&](const LocalTensor& part) { tensors::lerp_(part, end.local(), weight); });
}
const Tensor& Tensor::lerp_(const Tensor& end, const Tensor& weight) const {
  return in_place(
      "lerp_", *this, {&end, &weight},
      [&](const Tensor& old) {
        return dtensor::lerp(old, unless_same(*this, old, end), unless_same(*this, old, weight));
      },
      [&](const LocalTensor& part) { tensors::lerp_(part, end.local(), weight.local()); });
}

const Tensor& Tensor::copy_(const Tensor& source) const {
  check_writable("copy_", *this);
  check_not_shared("copy_", *this, source);
  if (!is_distributed() || source.is_distributed()) {
    const Tensor whole = source.expand(shape());
    if (!wants_gradient(*this, {})) return assign(*this, whole);
    return assign(*this, overwritten(as_it_was(*this, {}), whole));
  }
  if (source.numel() == 1) {
    const Tensor whole = everywhere(source, *this);
    if (!wants_gradient(*this, {})) return assign(*this, whole);
    return assign(*this, overwritten(as_it_was(*this, {}), whole));
  }
  throw Error(ErrorCode::kInvalidArgument,
              "copy_ of a local tensor of shape " + tensors::shape_to_string(source.shape()) +
                  " into " + spec().to_string(),
              "a local tensor of many elements has no place in it", "distribute_tensor() it");
}

const Tensor& Tensor::fill_(Scalar value) const {
  check_writable("fill_", *this);
  if (wants_gradient(*this, {})) {
    const Tensor number = tensors::full({}, value, {dtype(), device()});
    const Tensor all = is_distributed() ? everywhere(number, *this) : number.expand(shape());
    return assign(*this, overwritten(as_it_was(*this, {}), all));
  }
  if (MoveObserver::rehearsing() || is_outside(*this)) return *this;
  local().storage()->count_write();
  if (is_distributed() && without_partials(placements()) != placements()) {
    // The parts make up the value.
    const NoGrad no_grad;
    const Tensor number = tensors::full({}, value, {dtype(), device()});
    local().copy_(
        everywhere(number, *this).redistribute(placements(), spec().shard_order()).local());
  } else {
    local().fill_(value);
  }
  return *this;
}

}  // namespace dtrun::dtensor
