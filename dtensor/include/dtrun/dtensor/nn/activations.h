// Modules without parameters: activations and dropout. Names and defaults are torch.nn's.
#pragma once

#include "dtrun/dtensor/nn/module_holder.h"
#include "dtrun/dtensor/ops/elementwise.h"

namespace dtrun::dtensor::nn {

class ReLUModule : public Module {
 public:
  Tensor forward(const Tensor& input) override;
};
using ReLU = ModuleHolder<ReLUModule>;

class SiLUModule : public Module {
 public:
  Tensor forward(const Tensor& input) override;
};
using SiLU = ModuleHolder<SiLUModule>;

class TanhModule : public Module {
 public:
  Tensor forward(const Tensor& input) override;
};
using Tanh = ModuleHolder<TanhModule>;

class SigmoidModule : public Module {
 public:
  Tensor forward(const Tensor& input) override;
};
using Sigmoid = ModuleHolder<SigmoidModule>;

class GELUModule : public Module {
 public:
  explicit GELUModule(GeluForm its_form = GeluForm::erf) : form(its_form) {}
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

  const GeluForm form;
};
using GELU = ModuleHolder<GELUModule>;

class SoftmaxModule : public Module {
 public:
  explicit SoftmaxModule(int its_dim) : dim(its_dim) {}
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

  const int dim;
};
using Softmax = ModuleHolder<SoftmaxModule>;

/// Drops elements in training only. The mask is drawn from the thread's next random stream and does
/// not depend on the input's placements.
class DropoutModule : public Module {
 public:
  /// @throws Error kInvalidArgument for a p outside of [0, 1]
  explicit DropoutModule(double its_p = 0.5);
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

  const double p;
};
using Dropout = ModuleHolder<DropoutModule>;

}  // namespace dtrun::dtensor::nn
