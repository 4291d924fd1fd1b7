#include "dtrun/dtensor/optim/sgd.h"

#include "dtrun/tensor/ops/optimizer.h"

namespace dtrun::dtensor::optim {

SGD::SGD(const Tensors& parameters, SGDOptions options) : Optimizer("SGD") {
  add(parameters, options);
}
SGD::SGD(const std::vector<ParameterGroup<SGDOptions>>& groups) : Optimizer("SGD") {
  for (const auto& [parameters, options] : groups) add(parameters, options);
}

void SGD::add(const Tensors& parameters, const SGDOptions& options) {
  require(options.momentum >= 0, "momentum is at least 0");
  require(options.weight_decay >= 0, "weight_decay is at least 0");
  require(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
          "nesterov takes a momentum and no dampening");
  add_group(parameters, options.lr,
            options.momentum == 0 ? std::vector<std::string>{}
                                  : std::vector<std::string>{"momentum_buffer"},
            options.master_weights ? Masters::of_halves : Masters::none);
  options_.push_back(options);
}

void SGD::update(std::size_t group, const Parts& parts) {
  const SGDOptions& options = options_[group];
  tensors::sgd_step_(parts.parameters, parts.gradients,
                     parts.states.empty() ? tensors::TensorList{} : parts.states[0],
                     {.lr = lr(group),
                      .momentum = options.momentum,
                      .dampening = options.dampening,
                      .weight_decay = options.weight_decay,
                      .nesterov = options.nesterov,
                      .is_first = parts.step == 1});
}

}  // namespace dtrun::dtensor::optim
