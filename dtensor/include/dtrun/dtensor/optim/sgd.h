// Stochastic gradient descent, with momentum where one is given. torch.optim.SGD.
#pragma once

#include <vector>

#include "dtrun/dtensor/optim/optimizer.h"

namespace dtrun::dtensor::optim {

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool master_weights = false;  ///< f16 and bf16 parameters are changed through f32 copies
};

class SGD : public Optimizer {
 public:
  /// @throws Error kInvalidArgument for options out of their range; nesterov takes a momentum and
  /// no dampening
  explicit SGD(const Tensors& parameters, SGDOptions options = {});
  explicit SGD(const std::vector<ParameterGroup<SGDOptions>>& groups);

 private:
  void add(const Tensors& parameters, const SGDOptions& options);
  void update(std::size_t group, const Parts& parts) override;

  std::vector<SGDOptions> options_;
};

}  // namespace dtrun::dtensor::optim
