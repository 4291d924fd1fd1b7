// Losses as modules of two tensors: criterion(scores, targets). Names and defaults are torch.nn's.
#pragma once

#include "dtrun/dtensor/nn/module_holder.h"
#include "dtrun/dtensor/ops/rows.h"

namespace dtrun::dtensor::nn {

/// Of scores and classes, or probabilities: cross_entropy(). A weight becomes the buffer "weight".
class CrossEntropyLossModule : public Module {
 public:
  explicit CrossEntropyLossModule(LossOptions its_options = {});
  Tensors forward_all(const Tensors& inputs) override;

  const LossOptions options;
};
using CrossEntropyLoss = ModuleHolder<CrossEntropyLossModule>;

/// Of log-probabilities and classes: nll_loss(). A weight becomes the buffer "weight".
class NLLLossModule : public Module {
 public:
  explicit NLLLossModule(LossOptions its_options = {});
  Tensors forward_all(const Tensors& inputs) override;

  const LossOptions options;
};
using NLLLoss = ModuleHolder<NLLLossModule>;

/// Of two tensors of one shape: mse_loss().
class MSELossModule : public Module {
 public:
  explicit MSELossModule(Reduction its_reduction = Reduction::mean) : reduction(its_reduction) {}
  Tensors forward_all(const Tensors& inputs) override;

  const Reduction reduction;
};
using MSELoss = ModuleHolder<MSELossModule>;

}  // namespace dtrun::dtensor::nn
