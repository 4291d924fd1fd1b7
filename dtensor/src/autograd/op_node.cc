#include "autograd/op_node.h"

#include <algorithm>
#include <string_view>

#include "autograd/call_text.h"
#include "autograd/step_node.h"
#include "dispatch/choice.h"
#include "dispatch/dispatch.h"
#include "dtrun/base/error.h"

namespace dtrun::dtensor {

using base::Error;
using base::ErrorCode;

namespace {

/// The edge's node makes the tensor, which may lie otherwise than it did there.
void set_maker(const Tensor& tensor, const Edge& edge) {
  if (!edge.node) return;
  if (!Graph::is_on() || !edge.spec || edge.spec == tensor.spec())
    return Graph::set_producer(tensor, edge.node, edge.output);
  // The engine brings a gradient to where the tensor of its edge lies.
  const auto pass_on = [](const Tensor& gradient) { return gradient; };
  Graph::set_producer(tensor, base::Counted<Node>(new StepNode("redistribute", edge, pass_on,
                                                               PartialGradient::passed_on)));
}

}  // namespace

Tensor restored(std::string_view node, const Saved& saved, const Edge& edge) {
  if (saved.local.storage()->version() != saved.version) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "the gradient of " + std::string(node) + " needs a tensor of " +
            tensor_text(saved.spec ? Tensor(saved.spec, saved.local) : Tensor(saved.local)) +
            " that was changed in place",
        "it was written to " + std::to_string(saved.local.storage()->version() - saved.version) +
            " times since",
        "use the form that makes a new tensor, or clone() before");
  }
  const tensors::StoragePointer& storage = saved.local.storage();
  if (storage->data() == nullptr && storage->bytes() > 0) {
    throw Error(ErrorCode::kUsage,
                "the gradient of " + std::string(node) + " needs a parameter of shape " +
                    tensors::shape_to_string(saved.local.shape()) +
                    " that fully_shard() has given back after the forward",
                "it is gathered again when a gradient comes to the outputs of its unit, and this "
                "one came by another way",
                "return from the unit's forward all that is used of it, or "
                "fully_shard(..., {.reshard = Reshard::after_backward})");
  }
  Tensor tensor = saved.spec ? Tensor(saved.spec, saved.local) : Tensor(saved.local);
  set_maker(tensor, edge);
  return tensor;
}

OpNodeBase::OpNodeBase(std::string_view name, std::span<const Tensor* const> inputs, Saves saves)
    : Node(0), name_(name), saves_(saves) {
  edges_.reserve(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& input = *inputs[i];
    edges_.push_back(Edge::to(input));
    saved_.push_back(i < 32 && (saves.inputs >> i & 1U) != 0 ? Saved::of(input) : Saved{});
  }
  sequence_ = next_sequence();
}

namespace {

std::int64_t parts_of(const Spec& spec) {
  return sharding::parts_of(spec.layout(), spec.mesh().shape());
}

/// Whether a sum is due there that is not due yet here.
bool adds_partials(const Spec& from, const Spec& to) {
  for (std::size_t axis = 0; axis < to.layout().axes(); ++axis) {
    if (to.layout().is_partial(axis) && from.layout().differs_on(axis, to.layout())) return true;
  }
  return false;
}

/// Whether the way from one to the other takes more than cutting.
bool comes_from_others(const Spec& from, const Spec& to) {
  const DeviceMesh mesh = from.mesh();
  for (std::size_t axis = 0; axis < mesh.shape().size(); ++axis) {
    if (mesh.shape()[axis] > 1 && !from.layout().is_replicate(axis) &&
        from.layout().differs_on(axis, to.layout()))
      return true;
  }
  return false;
}

}  // namespace

// By the specs alone, so that all ranks keep the same.
std::vector<Brought> brought_inputs(const PreparedCall& call, std::span<const Tensor* const> inputs,
                                    Saves saves) {
  std::vector<Brought> brought;
  for (std::size_t i = 0; i < inputs.size() && i < 32; ++i) {
    const Spec &own = inputs[i]->spec(), &given = call.inputs[i];
    if ((saves.inputs >> i & 1U) == 0 || !own || own == given) continue;
    if (!adds_partials(own, given) && comes_from_others(own, given) &&
        parts_of(given) >= parts_of(own))
      brought.push_back({i, Tensor(given, call.locals[i])});
  }
  return brought;
}

void OpNodeBase::release() {
  // A node that saved nothing allows a second backward, as in PyTorch.
  released_ = saves_.inputs != 0 || saves_.output;
  saved_.clear();
  output_ = {};
}

void OpNodeBase::check_not_released() const {
  if (released_) refuse_second_backward(call_text(*this));
}

int OpNodeBase::wanted_inputs() const {
  int wanted = 0;
  for (const Edge& edge : edges_) wanted += edge.node ? 1 : 0;
  return wanted;
}

std::optional<ResultWish> OpNodeBase::wish(std::size_t which) const {
  const Edge* edge = &edges_[which];
  if (!edge->spec) return std::nullopt;
  // A redistribution passes a sum on, to where its own input lies.
  for (;;) {
    const auto* const step = dynamic_cast<const StepNode*>(edge->node.get());
    if (step == nullptr || !step->passes_partial_on() || !step->edges()[0].spec) break;
    edge = step->edges().data();
  }
  return ResultWish{edge->spec.mesh(), without_partials(edge->spec.placements())};
}

Tensor OpNodeBase::input(std::size_t which) const {
  return restored(name_, saved_[which], edges_[which]);
}

Tensor OpNodeBase::output() const {
  Edge self;
  self.node = base::Counted<Node>::share(const_cast<OpNodeBase*>(this));
  return restored(name_, output_, self);
}

}  // namespace dtrun::dtensor
