// Learning rates that change with the step. torch.optim.lr_scheduler. A schedule sets the rates of
// the optimizer's groups when it is made, and at each step(); it must not outlive the optimizer.
//
//     optim::CosineAnnealingLR schedule(optimizer, 1000);
//     for (...) { ...; optimizer.step(); schedule.step(); }
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "dtrun/dtensor/optim/optimizer.h"

namespace dtrun::dtensor::optim {

class LRScheduler {
 public:
  /// Of step 0, 1, ... and the rate that the group had when the schedule was made.
  using Rate = std::function<double(std::int64_t step, double base)>;

  LRScheduler(Optimizer& optimizer, Rate rate);
  void step();
  /// One per group.
  std::vector<double> get_last_lr() const;
  std::int64_t last_epoch() const { return last_epoch_; }
  /// To go on from there. @throws Error kInvalidArgument below 0
  void set_last_epoch(std::int64_t step);

 private:
  void apply();

  Optimizer& optimizer_;
  Rate rate_;
  std::vector<double> bases_;
  std::int64_t last_epoch_ = 0;
};

// All throw Error kInvalidArgument for numbers of steps below 1.

/// The base rate times factor(step).
struct LambdaLR : LRScheduler {
  LambdaLR(Optimizer& optimizer, std::function<double(std::int64_t step)> factor);
};
/// Times gamma after every step_size steps.
struct StepLR : LRScheduler {
  StepLR(Optimizer& optimizer, std::int64_t step_size, double gamma = 0.1);
};
/// Times gamma at each milestone.
struct MultiStepLR : LRScheduler {
  MultiStepLR(Optimizer& optimizer, std::vector<std::int64_t> milestones, double gamma = 0.1);
};
/// Times factor for the first total_iters steps.
struct ConstantLR : LRScheduler {
  ConstantLR(Optimizer& optimizer, double factor = 1.0 / 3, std::int64_t total_iters = 5);
};
/// Times what goes from start_factor to end_factor in total_iters steps.
struct LinearLR : LRScheduler {
  LinearLR(Optimizer& optimizer, double start_factor = 1.0 / 3, double end_factor = 1,
           std::int64_t total_iters = 5);
};
struct ExponentialLR : LRScheduler {
  ExponentialLR(Optimizer& optimizer, double gamma);
};
/// Times (1 - step / total_iters) to that power; 0 from there on.
struct PolynomialLR : LRScheduler {
  PolynomialLR(Optimizer& optimizer, std::int64_t total_iters = 5, double power = 1);
};
/// Half a cosine from the base rate to eta_min in t_max steps, and back again.
struct CosineAnnealingLR : LRScheduler {
  CosineAnnealingLR(Optimizer& optimizer, std::int64_t t_max, double eta_min = 0);
};
/// (step + 1) / warmup, then half a cosine down to min_ratio of the base rate at step `total`, and
/// so from there on.
struct WarmupCosineLR : LRScheduler {
  WarmupCosineLR(Optimizer& optimizer, std::int64_t warmup, std::int64_t total,
                 double min_ratio = 0);
};

}  // namespace dtrun::dtensor::optim
