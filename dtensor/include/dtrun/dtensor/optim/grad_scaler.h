// GradScaler keeps small f16 gradients above 0. It multiplies the loss before backward and divides
// the gradients before the step. If a gradient is not finite, the step is skipped and the factor
// shrinks (Micikevicius et al., "Mixed Precision Training", 2018).
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
  /// The axis of a Pipeline: all stages step, or none does.
  std::optional<DeviceMesh> stages = std::nullopt;
};

/// All ranks decide alike. Distributed gradients are checked by a collective; plain gradients must
/// be the same on all ranks. For use by one thread.
class GradScaler {
 public:
  /// @throws Error kInvalidArgument for options out of their range
  explicit GradScaler(GradScalerOptions options = {});

  Tensor scale(const Tensor& loss) const;
  /// Divides the gradients. @throws Error kInvalidArgument for a second call before update(), and
  /// for f16 gradients, in which the small ones would become 0: step() divides those in f32
  void unscale_(const Optimizer& optimizer, Tensor::Site site = Tensor::Site::current());
  /// optimizer.step(), unscaled before where that was not done. @return false: it was left out,
  /// for a gradient is infinite or nan. @throws Error kInvalidArgument for a second call before
  /// update()
  bool step(Optimizer& optimizer, Tensor::Site site = Tensor::Site::current());
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
  /// All but f16 gradients, which the optimizer divides once they are f32.
  void divide(const Optimizer& optimizer, const Tensor::Site& site);

  const GradScalerOptions options_;
  double scale_;
  std::int64_t finite_steps_ = 0;
  std::vector<Seen> seen_;  ///< since update()
};

}  // namespace dtrun::dtensor::optim
