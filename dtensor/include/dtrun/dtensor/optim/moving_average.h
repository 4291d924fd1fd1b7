// ExponentialMovingAverage: parameters averaged over the steps of a training, which often evaluate
// better than the last ones. torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn.
#pragma once

#include "dtrun/dtensor/nn/module.h"

namespace dtrun::dtensor::optim {

/// Each rank averages its parts: nothing is sent. One thread's.
class ExponentialMovingAverage {
 public:
  /// Of the parameters as they are now.
  /// @throws Error kInvalidArgument for a decay outside of [0, 1)
  explicit ExponentialMovingAverage(const nn::Module& module, double decay = 0.999);

  /// average = decay * average + (1 - decay) * parameter, after each step. The first call takes the
  /// parameters as they are, every call the integers. @throws Error kInvalidArgument where they lie
  /// otherwise than before
  void update();

  /// While it stands the module has the averages in place of its parameters' numbers.
  class Applied {
   public:
    explicit Applied(const ExponentialMovingAverage& average);
    ~Applied();
    Applied(const Applied&) = delete;
    Applied& operator=(const Applied&) = delete;

   private:
    const ExponentialMovingAverage& average_;
    Tensors own_;
  };
  [[nodiscard]] Applied apply() const { return Applied(*this); }

  /// The averages by the parameters' names, and "updates"; shares their elements.
  nn::StateDict state_dict() const;
  void load_state_dict(const nn::StateDict& state);

 private:
  void check_places() const;

  const double decay_;
  const nn::Module::NamedTensors parameters_;
  Tensors averages_;
  std::int64_t updates_ = 0;
};

}  // namespace dtrun::dtensor::optim
