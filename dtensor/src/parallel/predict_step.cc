#include "dtrun/dtensor/parallel/predict_step.h"

#include <utility>
#include <vector>

#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/autograd/random_state.h"
#include "dtrun/tensor/shapes_only.h"
#include "parallel/pass_watch.h"

namespace dtrun::dtensor {
namespace {

/// While it stands the parameters have no gradients. Then they have those of before again, and the
/// buffers their numbers: small ones are written in a pass without numbers, too.
class ModelKept {
 public:
  explicit ModelKept(const nn::Module& model) {
    for (const Tensor& buffer : model.buffers())
      buffers_.emplace_back(buffer.local(), buffer.local().clone());
    for (const Tensor& parameter : model.parameters()) {
      if (parameter.requires_grad()) gradients_.emplace_back(parameter, parameter.grad());
    }
    // Nothing throws from here on.
    for (const auto& [parameter, gradient] : gradients_) parameter.set_grad({});
  }
  ~ModelKept() {
    for (const auto& [parameter, gradient] : gradients_) parameter.set_grad(gradient);
    for (const auto& [buffer, numbers] : buffers_) buffer.copy_(numbers);
  }
  ModelKept(const ModelKept&) = delete;
  ModelKept& operator=(const ModelKept&) = delete;

 private:
  std::vector<std::pair<Tensor, Tensor>> gradients_;
  std::vector<std::pair<LocalTensor, LocalTensor>> buffers_;
};

}  // namespace

StepMemory predict_step(const nn::Module& model, const optim::Optimizer& optimizer,
                        const std::function<void()>& pass) {
  StepMemory memory;
  memory.states = optimizer.state_bytes();
  for (const Tensor& parameter : model.parameters()) {
    memory.parameters += bytes_here(parameter);
    if (parameter.requires_grad()) memory.gradients += bytes_here(parameter);
  }
  const ModelKept kept(model);
  const RandomScope random(random_state());
  const PassWatch watch(memory.parameters + memory.states);
  const tensors::ShapesOnly shapes_only;
  pass();
  watch.note(memory);
  return memory;
}

}  // namespace dtrun::dtensor
