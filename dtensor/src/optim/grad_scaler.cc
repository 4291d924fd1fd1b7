#include "dtrun/dtensor/optim/grad_scaler.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/optim/clip_grad.h"
#include "move/cause.h"

namespace dtrun::dtensor::optim {
namespace {

using base::Error;
using base::ErrorCode;

[[noreturn]] void refuse_scaler(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::kInvalidArgument, "GradScaler: " + what, "", remedy);
}

Tensors gradients_of_all(const Optimizer& optimizer) {
  Tensors gradients;
  for (std::size_t group = 0; group < optimizer.groups(); ++group) {
    for (const Tensor& parameter : optimizer.parameters(group)) {
      if (parameter.grad().defined()) gradients.push_back(parameter.grad().detach());
    }
  }
  return gradients;
}

}  // namespace

GradScaler::GradScaler(GradScalerOptions options)
    : options_(std::move(options)), scale_(options_.init_scale) {
  if (!(scale_ > 0) || !std::isfinite(scale_)) refuse_scaler("init_scale is above 0", "65536");
  if (!(options_.growth_factor > 1)) refuse_scaler("growth_factor is above 1", "2");
  if (!(options_.backoff_factor > 0 && options_.backoff_factor < 1))
    refuse_scaler("backoff_factor is between 0 and 1", "0.5");
  if (options_.growth_interval < 1) refuse_scaler("growth_interval is at least 1", "2000");
}

Tensor GradScaler::scale(const Tensor& loss) const {
  return loss * scale_;
}

GradScaler::Seen* GradScaler::seen(const Optimizer& optimizer) {
  const auto found = std::ranges::find(seen_, &optimizer, &Seen::optimizer);
  return found == seen_.end() ? nullptr : &*found;
}

void GradScaler::unscale_(const Optimizer& optimizer, Tensor::Site site) {
  if (seen(optimizer) != nullptr)
    refuse_scaler("unscale_() of an optimizer a second time", "update() after each step");
  const auto is_f16 = [](const Tensor& gradient) { return gradient.dtype() == DType::f16; };
  if (std::ranges::any_of(gradients_of_all(optimizer), is_f16))
    refuse_scaler("unscale_() of f16 gradients, in which the small ones would become 0",
                  "clip to max_norm * get_scale() and leave it to step(), or f32 parameters");
  divide(optimizer, site);
}

void GradScaler::divide(const Optimizer& optimizer, const Tensor::Site& site) {
  const Cause cause("unscale_", Cause::Wish::asked, site);
  const NoGrad no_grad;
  const Tensors gradients = gradients_of_all(optimizer);
  for (const Tensor& gradient : gradients) {
    if (gradient.dtype() != DType::f16) Tensor(gradient.local()).mul_(1 / scale_);
  }
  const double norm = get_total_norm(gradients, INFINITY, options_.stages).item();
  seen_.push_back({&optimizer, std::isfinite(norm)});
}

bool GradScaler::step(Optimizer& optimizer, Tensor::Site site) {
  if (seen(optimizer) == nullptr) divide(optimizer, site);
  Seen& its = *seen(optimizer);
  if (std::exchange(its.has_stepped, true))
    refuse_scaler("step() of an optimizer a second time", "update() after each step");
  if (its.is_finite) optimizer.step_with(1 / scale_, site);
  return its.is_finite;
}

void GradScaler::update() {
  if (seen_.empty()) refuse_scaler("update() without a step", "step(optimizer) before");
  const bool all_finite = std::ranges::all_of(seen_, &Seen::is_finite);
  seen_.clear();
  if (!all_finite) {
    scale_ *= options_.backoff_factor;
    finite_steps_ = 0;
  } else if (++finite_steps_ == options_.growth_interval) {
    const double grown = scale_ * options_.growth_factor;
    if (std::isfinite(static_cast<float>(grown))) scale_ = grown;
    finite_steps_ = 0;
  }
}

nn::StateDict GradScaler::state_dict() const {
  return {{"scale", full({}, scale_, {.dtype = DType::f64})},
          {"growth_tracker", full({}, finite_steps_, {.dtype = DType::i64})}};
}

void GradScaler::load_state_dict(const nn::StateDict& state) {
  const double scale = state.at("scale").item();
  const double finite_steps = state.at("growth_tracker").item();
  scale_ = scale;
  finite_steps_ = static_cast<std::int64_t>(finite_steps);
}

}  // namespace dtrun::dtensor::optim
