// GradScaler: keeps small gradients of f16 above 0. The loss is multiplied before backward, the
// gradients are divided before the step; where one is not finite the step is left out and the
// factor becomes smaller (Micikevicius et al., "Mixed Precision Training", 2018).
// torch.amp.GradScaler.
//
//     scaler.scale(loss).backward();
//     scaler.unscale_(optimizer);                 // only where gradients are looked at, as to clip
//     optim::clip_grad_norm_(parameters, 1);
//     scaler.step(optimizer);
//     scaler.update();
#pragma once

#include <optional>
#include <vector>

#include "dtrun/dtensor/nn/state_dict.h"
#include "dtrun/dtensor/optim/optimizer.h"

namespace dtrun::dtensor::optim {

struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  std::int64_t growth_interval = 2000;  ///< finite steps after which the factor grows
  /// Of a pipeline: its axis. All stages step, or none does.
  std::optional<DeviceMesh> stages = std::nullopt;
};

/// All ranks decide alike: gradients on a mesh are asked for collectively, plain ones are the same
/// on all ranks already. One thread's.
class GradScaler {
 public:
  /// @throws Error kInvalidArgument for options out of their range
  explicit GradScaler(GradScalerOptions options = {});

  Tensor scale(const Tensor& loss) const;
  /// Divides the gradients. @throws Error kInvalidArgument for a second call before update()
  void unscale_(const Optimizer& optimizer);
  /// optimizer.step(), unscaled before where that was not done. @return false: it was left out,
  /// for a gradient is infinite or nan. @throws Error kInvalidArgument for a second call before
  /// update()
  bool step(Optimizer& optimizer);
  /// The factor of the next step.
  void update();
  double get_scale() const { return scale_; }

  nn::StateDict state_dict() const;  ///< "scale" and "growth_tracker"
  void load_state_dict(const nn::StateDict& state);

 private:
  struct Seen {
    const Optimizer* optimizer;
    bool is_finite;
    bool has_stepped = false;
  };
  /// Null: not yet.
  Seen* seen(const Optimizer& optimizer);

  const GradScalerOptions options_;
  double scale_;
  std::int64_t finite_steps_ = 0;
  std::vector<Seen> seen_;  ///< since update()
};

}  // namespace dtrun::dtensor::optim
