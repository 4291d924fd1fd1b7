// checkpoint: runs a function again in backward instead of saving its intermediate results.
#include <utility>

#include "autograd/op_node.h"
#include "autograd/step_node.h"
#include "autograd/surroundings.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/autograd/random_state.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::dtensor {
namespace {

class CheckpointNode : public StepNode {
 public:
  using StepNode::StepNode;
  bool fills_other_leaves() const override { return true; }
};

}  // namespace

Tensor checkpoint(const std::function<Tensor(const Tensor&)>& f, const Tensor& x) {
  Tensor result;
  const RandomState drawn_from = random_state();
  {
    const NoGrad no_grad;
    result = f(x.detach()).detach();
  }
  if (!Graph::is_on() || !tensors::is_floating_point(result.dtype())) return result;
  const bool wanted = x.requires_grad();
  // f may use tensors that want gradients even if x does not: a stand-in that requires a gradient
  // takes the place of x.
  const Tensor input = wanted ? x : Tensor(tensors::zeros({})).requires_grad_();
  const auto backward = [f, saved = Saved::of(x), wanted, drawn_from,
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
    const Tensor redone = f(again);
    if (redone.requires_grad()) redone.backward(gradient);
    return wanted ? again.grad() : Tensor();
  };
  Graph::set_producer(result, base::Counted<Node>(new CheckpointNode("checkpoint", input, backward,
                                                                     PartialGradient::reduced)));
  return result;
}

}  // namespace dtrun::dtensor
