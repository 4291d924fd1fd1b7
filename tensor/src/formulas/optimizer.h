// The steps of optimizers, element by element, for the host and for CUDA devices: what does not
// change from element to element, and what it does to one.
#pragma once

#include <cmath>

#include "dtrun/tensor/ops/optimizer.h"
#include "host_device.h"

namespace dtrun::tensors::formulas {
namespace {

template <typename T>
struct Adam {
  T kept, gradient_decay, weight1, beta2, weight2, root_correction, eps, step_size;

  explicit Adam(const AdamStep& o)
      : kept(static_cast<T>(o.decay == AdamStep::Decay::decoupled ? 1 - o.lr * o.weight_decay : 1)),
        gradient_decay(
            static_cast<T>(o.decay == AdamStep::Decay::of_gradient ? o.weight_decay : 0)),
        weight1(static_cast<T>(1 - o.beta1)),
        beta2(static_cast<T>(o.beta2)),
        weight2(static_cast<T>(1 - o.beta2)),
        root_correction(
            static_cast<T>(std::sqrt(1 - std::pow(o.beta2, static_cast<double>(o.step))))),
        eps(static_cast<T>(o.eps)),
        step_size(static_cast<T>(-o.lr / (1 - std::pow(o.beta1, static_cast<double>(o.step))))) {}

  DTRUN_BOTH void operator()(T& parameter, T gradient, T& moment, T& second) const {
    const T p = parameter * kept;
    const T g = gradient + p * gradient_decay;
    const T m = moment + weight1 * (g - moment);
    const T v = second * beta2 + weight2 * (g * g);
    const T divisor = std::sqrt(v) / root_correction + eps;
    moment = m;
    second = v;
    parameter = p + step_size * (m / divisor);
  }
};

/// Without momentum.
template <typename T>
struct Sgd {
  T lr, decay;

  explicit Sgd(const SgdStep& o)
      : lr(static_cast<T>(o.lr)), decay(static_cast<T>(o.weight_decay)) {}

  DTRUN_BOTH void operator()(T& parameter, T gradient) const {
    parameter -= lr * (gradient + decay * parameter);
  }
};

template <typename T>
struct SgdMomentum {
  T lr, momentum, kept, weight, decay, looked_ahead;

  explicit SgdMomentum(const SgdStep& o)
      : lr(static_cast<T>(o.lr)),
        momentum(static_cast<T>(o.momentum)),
        kept(o.is_first ? T{0} : momentum),
        weight(o.is_first ? T{1} : static_cast<T>(1 - o.dampening)),
        decay(static_cast<T>(o.weight_decay)),
        looked_ahead(static_cast<T>(o.nesterov ? 1 : 0)) {}

  DTRUN_BOTH void operator()(T& parameter, T gradient, T& past) const {
    const T g = gradient + decay * parameter;
    const T m = past * kept + weight * g;
    past = m;
    parameter -= lr * (looked_ahead != T{0} ? g + momentum * m : m);
  }
};

}  // namespace
}  // namespace dtrun::tensors::formulas
