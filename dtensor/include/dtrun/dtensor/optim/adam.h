// Adam, and AdamW, whose weight decay does not go through the moments. torch.optim.Adam, AdamW.
// Sources: Kingma, Ba: Adam (2015); Loshchilov, Hutter: Decoupled weight decay regularization
// (2019).
#pragma once

#include <vector>

#include "dtrun/dtensor/optim/optimizer.h"

namespace dtrun::dtensor::optim {

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool master_weights = false;  ///< f16 and bf16 parameters are changed through f32 copies
};
struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
  bool master_weights = false;  ///< f16 and bf16 parameters are changed through f32 copies
};

class Adam : public Optimizer {
 public:
  /// @throws Error kInvalidArgument for options out of their range
  explicit Adam(const Tensors& parameters, const AdamOptions& options = {});
  explicit Adam(const std::vector<ParameterGroup<AdamOptions>>& groups);

 private:
  void update(std::size_t group, const Parts& parts) override;

  std::vector<AdamOptions> options_;
};

class AdamW : public Optimizer {
 public:
  /// @throws Error kInvalidArgument for options out of their range
  explicit AdamW(const Tensors& parameters, const AdamWOptions& options = {});
  explicit AdamW(const std::vector<ParameterGroup<AdamWOptions>>& groups);

 private:
  void update(std::size_t group, const Parts& parts) override;

  std::vector<AdamWOptions> options_;
};

}  // namespace dtrun::dtensor::optim
