#include "dtrun/dtensor/autograd/tensor.h"

#include <ostream>
#include <utility>

#include "autograd/deferred.h"
#include "autograd/step_node.h"
#include "dispatch/rule_probe.h"
#include "dtrun/base/check.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/tensor/ops.h"
#include "move/repeated_move.h"

namespace dtrun::dtensor {

using base::Error;
using base::ErrorCode;

namespace {

LocalTensor empty_part(const Spec& spec, Device device) {
  return tensors::zeros(spec.local_box().shape, {spec.dtype(), device});
}

/// A rule that a probe makes an operator take may be wrong.
void check_probed(const Spec& spec, const LocalTensor& local) {
  if (local.shape() == spec.local_box().shape && local.dtype() == spec.dtype()) return;
  throw Error(ErrorCode::kInvalidArgument,
              "a rank's part of shape " + tensors::shape_to_string(local.shape()) + " of " +
                  spec.to_string(),
              "the part has the shape " + tensors::shape_to_string(spec.local_box().shape),
              "another rule for the operator");
}

}  // namespace

Tensor::Body::Body(LocalTensor its_local, Spec its_spec)
    : local(std::move(its_local)), spec(std::move(its_spec)) {}
Tensor::Body::~Body() {
  RepeatedMove::free(repeated.load(std::memory_order_relaxed));
}

void Tensor::Body::forget_moves() {
  moved_to.store(0, std::memory_order_relaxed);
  RepeatedMove::free(repeated.exchange(nullptr, std::memory_order_relaxed));
}

void Tensor::Body::destroy(Body* body) noexcept {
  delete body;
}

Tensor::Tensor(LocalTensor local)
    : body_(local.defined() ? new Body(std::move(local), Spec()) : nullptr) {}

Tensor::Tensor(Spec spec, LocalTensor local) {
  // A move to another mesh brings nothing here in that shape already.
  const bool is_part = local.numel() == 0 && local.shape() == spec.local_box().shape;
  if (spec.is_outside() && !is_part) [[unlikely]]
    local = empty_part(spec, local.device());
  if (RuleProbe::current() != nullptr) [[unlikely]]
    check_probed(spec, local);
  DT_CHECK(local.shape() == spec.local_box().shape);
  DT_CHECK(local.dtype() == spec.dtype());
  body_ = base::Counted<Body>(new Body(std::move(local), std::move(spec)));
}

Tensor Tensor::outside(Spec spec, Device device) {
  LocalTensor part = empty_part(spec, device);
  return Tensor(std::move(spec), std::move(part));
}

void Tensor::refuse_undefined_use() {
  throw Error(ErrorCode::kInvalidArgument, "an undefined tensor was used",
              "nothing was assigned to it yet, or it is a grad() before backward()",
              "ask defined() first");
}

std::int64_t Tensor::size(int dim) const {
  return shape()[static_cast<std::size_t>(tensors::normalize_dim(dim, shape().size()))];
}

DeviceMesh Tensor::device_mesh() const {
  placements();
  return spec().mesh();
}

const Placements& Tensor::placements() const {
  if (!is_distributed()) {
    throw Error(ErrorCode::kInvalidArgument,
                "a local tensor of shape " + tensors::shape_to_string(shape()) +
                    " has no mesh and no placements",
                "", "distribute_tensor(), or DTensor::from_local()");
  }
  return spec().placements();
}

void* Tensor::checked_data(DType wanted) const {
  if (dtype() == wanted) return data();
  throw Error(ErrorCode::kInvalidArgument,
              "data_ptr of " + std::string(tensors::dtype_name(wanted)) +
                  " elements of a tensor of " + std::string(tensors::dtype_name(dtype())),
              "a pointer shows the elements as they are", "to(), or the type of its elements");
}

const LocalTensor& Tensor::plain_local() const {
  static const LocalTensor kNone;
  if (!defined()) return kNone;
  if (!is_distributed()) return local();
  throw Error(ErrorCode::kInvalidArgument,
              "the elements of a distributed tensor were asked for: " + spec().to_string(),
              "each rank holds only its part",
              "to_local() for the part, full_tensor() for the whole");
}

const Tensor& Tensor::shown() const {
  if (defined() && local().storage()->owners() > 1) return *this;
  throw Error(ErrorCode::kInvalidArgument,
              "assignment to an expression that is a copy, so that nobody would see it",
              "a slice of a dim that is sharded is one, and a reshape that has to copy",
              "redistribute() first, or write to the tensor of to_local()");
}

Tensor Tensor::to(Device device) const {
  if (device == this->device()) return *this;
  const LocalTensor moved = plain_local().to(device);
  return recorded("to", *this, Tensor(moved),
                  [from = this->device()](const Tensor& gradient) { return gradient.to(from); });
}

std::string Tensor::to_string() const {
  if (!is_distributed()) return local().to_string();
  std::string text = "DTensor(local_tensor=" + local().to_string() +
                     ", device_mesh=" + device_mesh().to_string() + ", placements=(";
  for (std::size_t i = 0; i < placements().size(); ++i) {
    text += (i == 0 ? "" : ", ") + placements()[i].repr();
  }
  text += placements().size() == 1 ? ",)" : ")";
  // PyTorch's text has no order, so that [S01] and [S10] would look alike.
  const std::string layout = spec().layout().to_string();
  constexpr std::string_view kOrder = " order ";
  if (const std::size_t at = layout.find(kOrder); at != std::string::npos)
    text += ", shard_order=" + layout.substr(at + kOrder.size());
  return text + ")";
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  return out << tensor.to_string();
}

}  // namespace dtrun::dtensor
