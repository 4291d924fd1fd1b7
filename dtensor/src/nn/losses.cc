#include "dtrun/dtensor/nn/losses.h"

#include <utility>

#include "dtrun/base/error.h"

namespace dtrun::dtensor::nn {
namespace {

void check_pair(const Module& module, const Tensors& inputs) {
  if (inputs.size() == 2) return;
  throw base::Error(base::ErrorCode::kInvalidArgument,
                    module.name() + " was called with " + std::to_string(inputs.size()) +
                        (inputs.size() == 1 ? " tensor" : " tensors"),
                    "a loss compares what a model gives with what it should give",
                    "criterion(scores, targets)");
}

/// The registered weight: it moves with the module.
LossOptions with_buffer(Module& module, LossOptions options) {
  if (options.weight.defined())
    options.weight = module.register_buffer("weight", options.weight.detach());
  return options;
}

}  // namespace

CrossEntropyLossModule::CrossEntropyLossModule(LossOptions its_options)
    : options(with_buffer(*this, std::move(its_options))) {}

Tensors CrossEntropyLossModule::forward_all(const Tensors& inputs) {
  check_pair(*this, inputs);
  return {cross_entropy(inputs[0], inputs[1], options)};
}

NLLLossModule::NLLLossModule(LossOptions its_options)
    : options(with_buffer(*this, std::move(its_options))) {}

Tensors NLLLossModule::forward_all(const Tensors& inputs) {
  check_pair(*this, inputs);
  return {nll_loss(inputs[0], inputs[1], options)};
}

Tensors MSELossModule::forward_all(const Tensors& inputs) {
  check_pair(*this, inputs);
  return {mse_loss(inputs[0], inputs[1], reduction)};
}

}  // namespace dtrun::dtensor::nn
