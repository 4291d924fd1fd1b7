// checkpoint: runs a function again in backward instead of saving its intermediate results.
#include <optional>
#include <utility>

#include "autograd/op_node.h"
#include "autograd/step_node.h"
#include "autograd/surroundings.h"
#include "dispatch/result_wish.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/autograd/random_state.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/own_storages.h"

namespace dtrun::dtensor {
namespace {

class CheckpointNode : public StepNode {
 public:
  using StepNode::StepNode;
  bool fills_other_leaves() const override { return true; }
};

/// Done a second time, the writes would find what the first ones left. Operators in place refuse
/// that themselves (OwnStorages); this is for other writes to the elements.
void check_not_written(const Saved& saved) {
  if (saved.local.storage()->version() == saved.version) return;
  throw base::Error(base::ErrorCode::kInvalidArgument,
                    "checkpoint() of a function that changes its input of shape " +
                        tensors::shape_to_string(saved.local.shape()) + " in place",
                    "backward runs it again, on the numbers that it had at first",
                    "the form that makes a new tensor, or clone() it within the function");
}

}  // namespace

Tensor checkpoint(const std::function<Tensor(const Tensor&)>& f, const Tensor& x) {
  Tensor result;
  const RandomState drawn_from = random_state();
  const Saved before = Saved::of(x);
  {
    const RunTwiceScope twice(Graph::is_on());
    // Also within another checkpoint's first run, which records nothing: this one is run twice
    // then.
    std::optional<tensors::OwnStorages> written_alone;
    if (RunTwiceScope::stands()) written_alone.emplace();
    const NoGrad no_grad;
    result = f(x.detach()).detach();
  }
  check_not_written(before);
  if (!Graph::is_on() || !tensors::is_floating_point(result.dtype())) return result;
  const bool wanted = x.requires_grad();
  // f may use tensors that want gradients even if x does not: a stand-in that requires a gradient
  // takes the place of x.
  const Tensor input = wanted ? x : Tensor(tensors::zeros({})).requires_grad_();
  const auto backward = [f, saved = before, wanted, drawn_from,
                         around = surroundings::standing()](const Tensor& gradient) {
    if (Graph::is_on()) {
      throw base::Error(base::ErrorCode::kInvalidArgument, "create_graph through a checkpoint",
                        "its forward is done again, outside of the graph",
                        "the same function without checkpoint()");
    }
    const GradMode on(true);
    const RandomScope same_numbers(drawn_from);
    const surroundings::Again same_surroundings(around);
    const Tensor again = restored("checkpoint", saved, Edge());
    if (wanted) again.requires_grad_();
    const Tensor redone = [&] {
      const RunTwiceScope twice(true);
      return f(again);
    }();
    if (redone.requires_grad()) redone.backward(gradient);
    return wanted ? again.grad() : Tensor();
  };
  Graph::set_producer(result, base::Counted<Node>(new CheckpointNode("checkpoint", input, backward,
                                                                     PartialGradient::reduced)));
  return result;
}

}  // namespace dtrun::dtensor
