// In-place forms: the operator's new tensor, written over the old elements; in the graph the tensor
// becomes what the operator made.
#include "autograd/node.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd.h"
#include "dtrun/dtensor/ops.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;

void check_writable(const char* op, const Tensor& target) {
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

/// The numbers of `target` as they are, for an operator whose gradient may want them.
Tensor as_it_was(const Tensor& target, const Tensor& other) {
  const bool wanted = target.requires_grad() || other.requires_grad();
  if (!Graph::is_on() || !wanted) return target.detach();
  const LocalTensor copy = target.local().clone();
  const Tensor old = target.is_distributed() ? Tensor(target.spec(), copy) : Tensor(copy);
  Graph::set_producer(old, Graph::producer(target), Graph::output(target));
  return old;
}

void check_result(const char* op, const Tensor& target, const Tensor& result) {
  const bool loses_fraction =
      tensors::is_floating_point(result.dtype()) && !tensors::is_floating_point(target.dtype());
  if (result.shape() == target.shape() && !loses_fraction) return;
  throw Error(ErrorCode::kInvalidArgument,
              std::string(op) + " on a tensor of " +
                  std::string(tensors::dtype_short_name(target.dtype())) +
                  tensors::shape_to_string(target.shape()) + " gives " +
                  std::string(tensors::dtype_short_name(result.dtype())) +
                  tensors::shape_to_string(result.shape()),
              "which does not fit into it", "the form that makes a new tensor");
}

const Tensor& assign(const Tensor& target, const Tensor& result) {
  Tensor fitting = result.to(target.dtype());
  // A local target holds all of it, and every rank's the same.
  if (!target.is_distributed() && fitting.is_distributed()) fitting = fitting.full_tensor();
  if (target.is_distributed()) {
    fitting = fitting.redistribute(target.placements(), target.spec().shard_order());
  }
  target.local().copy_(fitting.local());
  target.local().storage()->count_write();
  if (Graph::is_on()) {
    Graph::set_producer(target, Graph::producer(fitting), Graph::output(fitting));
  }
  return target;
}

const Tensor& in_place(const char* name, Tensor (*op)(const Tensor&, const Tensor&),
                       const Tensor& target, const Tensor& other) {
  check_writable(name, target);
  check_not_shared(name, target, other);
  const Tensor old = as_it_was(target, other);
  const Tensor result = op(old, same(target, other) ? old : other);
  check_result(name, target, result);
  return assign(target, result);
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
  return in_place("add_", &dtensor::add, *this, other);
}
const Tensor& Tensor::sub_(const Tensor& other) const {
  return in_place("sub_", &dtensor::sub, *this, other);
}
const Tensor& Tensor::mul_(const Tensor& other) const {
  return in_place("mul_", &dtensor::mul, *this, other);
}

const Tensor& Tensor::div_(const Tensor& other) const {
  return in_place("div_", &dtensor::div, *this, other);
}

const Tensor& Tensor::copy_(const Tensor& source) const {
  check_writable("copy_", *this);
  check_not_shared("copy_", *this, source);
  if (!is_distributed() || source.is_distributed()) {
    return assign(*this, source.expand(shape()));
  }
  if (source.numel() == 1) {
    return assign(*this, everywhere(source, *this));
  }
  throw Error(ErrorCode::kInvalidArgument,
              "copy_ of a local tensor of shape " + tensors::shape_to_string(source.shape()) +
                  " into " + spec().to_string(),
              "a local tensor of many elements has no place in it", "distribute_tensor() it");
}

const Tensor& Tensor::fill_(Scalar value) const {
  check_writable("fill_", *this);
  if (is_distributed() && without_partials(placements()) != placements()) {
    // The parts make up the value.
    const NoGrad no_grad;
    const Tensor number = tensors::full({}, value, {dtype(), device()});
    local().copy_(
        everywhere(number, *this).redistribute(placements(), spec().shard_order()).local());
  } else {
    local().fill_(value);
  }
  local().storage()->count_write();
  if (Graph::is_on()) Graph::set_producer(*this, nullptr);
  return *this;
}

}  // namespace dtrun::dtensor
