#include "ops/in_place.h"

#include <algorithm>

#include "autograd/call_text.h"
#include "autograd/rehearsed_graph.h"
#include "dispatch/dispatch.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/tensor/own_storages.h"
#include "move/cause.h"
#include "move/legal_layouts.h"
#include "move/move_observer.h"

namespace dtrun::dtensor::in_place_steps {
namespace {

using base::Error;
using base::ErrorCode;

bool is_outside_mesh(const Tensor& tensor) {
  return tensor.is_distributed() && tensor.spec().is_outside();
}

/// What a checkpoint() around this call has not made would be changed once more by its backward.
void check_not_run_twice(const char* op, const Tensor& target) {
  if (is_outside_mesh(target) || !tensors::OwnStorages::lack(*target.local().storage())) return;
  throw Error(ErrorCode::kInvalidArgument,
              std::string(op) + " within checkpoint() on a tensor of shape " +
                  tensors::shape_to_string(target.shape()) + " that was made before it",
              "backward runs the function again, and would change the tensor a second time",
              "the form that makes a new tensor, or clone() it within the function");
}

/// retain_grad() was said of the tensor, not of what made its numbers before.
void move_producer(const Tensor& target, const Tensor& result) {
  if (MoveObserver::rehearsing()) return RehearsedGraph::write(target, result);
  const base::Counted<Node> before = Graph::producer(target);
  const std::uint32_t output = Graph::output(target);
  Graph::set_producer(target, Graph::producer(result), Graph::output(result));
  if (!before || !before->keeps_gradient(output) || !target.requires_grad()) return;
  before->stop_keeping(output);
  target.retain_grad();
}

}  // namespace

void require_defined(const char* op, const Tensor& target, Others others) {
  if (!target.defined()) refuse_undefined(op, 0);
  for (const Tensor* const* other = others.begin(); other != others.end(); ++other) {
    if (!(*other)->defined())
      refuse_undefined(op, static_cast<std::size_t>(other - others.begin()) + 1);
  }
}

bool is_to_be_written(const Tensor& target) {
  return !MoveObserver::rehearsing() && !is_outside_mesh(target);
}

void check_writable(const char* op, const Tensor& target) {
  check_not_run_twice(op, target);
  if (Graph::is_copy(target)) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string(op) + " on a copy of what a view would show, " + tensor_text(target),
                "the view needed elements of other ranks, so the tensor that it was made of would "
                "not change",
                "redistribute() the tensor so that the dim is whole, or clone() the view and write "
                "to that");
  }
  if (!target.requires_grad() || !Graph::is_on()) return;
  if (target.is_leaf()) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string(op) + " on a leaf that requires a gradient, " + tensor_text(target),
                "its gradient would be that of numbers that are gone",
                "within NoGrad, or the form that makes a new tensor");
  }
  if (Graph::is_view(target)) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string(op) + " on a view that requires a gradient, " + tensor_text(target),
                "the tensor that it shows would change behind its gradient's back",
                "clone() the view, or the form that makes a new tensor");
  }
}

void check_not_shared(const char* op, const Tensor& target, const Tensor& value) {
  if (!Graph::is_on() || !value.requires_grad()) return;
  if (target.requires_grad() || target.local().storage()->owners() == 1) return;
  throw Error(ErrorCode::kInvalidArgument,
              std::string(op) + " of a tensor that requires a gradient, " + tensor_text(value) +
                  ", into " + tensor_text(target) + " that shares its elements",
              "the tensors that share them would have the numbers and no gradient",
              "cat() or stack() the parts, or detach() the value");
}

bool needs_graph(const Tensor& target, Others others) {
  if (!Graph::is_on()) return false;
  const auto wants = [](const Tensor* other) { return other->requires_grad(); };
  return target.requires_grad() || std::any_of(others.begin(), others.end(), wants);
}

Tensor as_it_was(const Tensor& target, Others others) {
  if (!needs_graph(target, others)) return target.detach();
  const LocalTensor copy = target.local().clone();
  const Tensor old = target.is_distributed() ? Tensor(target.spec(), copy) : Tensor(copy);
  Graph::set_producer(old, Graph::producer(target), Graph::output(target));
  return old;
}

bool is_in_step(const Tensor& target, Others others) {
  if (needs_graph(target, others) || !tensors::is_floating_point(target.dtype())) return false;
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

void tell_in_place(const char* op, const Tensor& target, Others others, const Error& error) {
  std::vector<CallArgument> arguments = {{"", target}};
  for (const Tensor* other : others) arguments.emplace_back("", *other);
  tell_named_call(op, arguments, error);
}

const Tensor& unless_same(const Tensor& target, const Tensor& old, const Tensor& other) {
  return same(target, other) ? old : other;
}

namespace {

/// For what a form in place makes.
class LayoutOfTarget : public LegalLayouts {
 public:
  explicit LayoutOfTarget(const Tensor& target) : target_(target) {}

  std::string nearest() const override {
    return std::string(Cause::outermost()->op()) +
           " takes operands whose result lies as the tensor that it writes, " +
           (target_.is_distributed() ? target_.spec().layout().to_string() : "local");
  }

 private:
  const Tensor& target_;
};

}  // namespace

Tensor lying_as_target(const Tensor& target, const Tensor& value) {
  const LayoutOfTarget legal(target);
  // A local target holds all of it, and every rank's the same.
  if (!target.is_distributed()) return value.is_distributed() ? value.full_tensor() : value;
  return value.redistribute(target.placements(), target.spec().shard_order());
}

const Tensor& assign(const Tensor& target, const Tensor& result) {
  const Tensor fitting = lying_as_target(target, result.to(target.dtype()));
  if (is_to_be_written(target)) {
    target.local().storage()->count_write();
    target.local().copy_(fitting.local());
  }
  // Outside of the mesh, too: there the graph may go on to another mesh.
  if (Graph::is_on()) move_producer(target, fitting);
  return target;
}

}  // namespace dtrun::dtensor::in_place_steps
