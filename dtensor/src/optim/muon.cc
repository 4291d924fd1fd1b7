#include "dtrun/dtensor/optim/muon.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "dtrun/dtensor/mesh/spec.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/products.h"
#include "dtrun/dtensor/ops/reduction.h"

namespace dtrun::dtensor::optim {
namespace {

/// The matrix with singular values of about 1: x -> a x + (b s + c s^2) x of s = x x^t, whose
/// coefficients bring values from 0.01 on near 1 in five steps (Jordan, 2024).
Tensor orthogonal(const Tensor& matrix, const MuonOptions& options) {
  constexpr double a = 3.4445, b = -4.7750, c = 2.0315;
  const bool is_tall = matrix.size(0) > matrix.size(1);
  Tensor x = is_tall ? matrix.t() : matrix;
  x = x / clamp(norm(x), options.eps);
  for (int step = 0; step < options.ns_steps; ++step) {
    const Tensor square = mm(x, x.t());
    x = x * a + mm(square * b + mm(square, square) * c, x);
  }
  return is_tall ? x.t() : x;
}

/// Of this rank's part of an update, this rank's part of the orthogonal one.
LocalTensor orthogonal_part(const Tensor& parameter, const LocalTensor& part,
                            const MuonOptions& options) {
  if (!parameter.is_distributed()) return orthogonal(part, options).local();
  const Spec& spec = parameter.spec();
  const Tensor whole = orthogonal(Tensor(spec, part).full_tensor(), options);
  // The order, too: axes that cut one dim leave other rows to a rank in another order.
  return Tensor::from_local(whole, spec.mesh(), Placements(spec.placements().size(), Replicate()))
      .redistribute(spec.placements(), spec.shard_order())
      .local();
}

double rate_of(const Shape& shape, double lr, MuonRate rate) {
  const auto rows = static_cast<double>(shape[0]), columns = static_cast<double>(shape[1]);
  if (rate == MuonRate::match_rms_adamw) return lr * 0.2 * std::sqrt(std::max(rows, columns));
  return lr * std::sqrt(std::max(1.0, rows / columns));
}

}  // namespace

Muon::Muon(const Tensors& parameters, const MuonOptions& options)
    : Muon(std::vector<ParameterGroup<MuonOptions>>{{parameters, options}}) {}
Muon::Muon(const std::vector<ParameterGroup<MuonOptions>>& groups) : Optimizer("Muon") {
  for (const auto& [parameters, options] : groups) {
    require(options.momentum >= 0 && options.momentum < 1, "momentum is in [0, 1)");
    require(options.weight_decay >= 0, "weight_decay is at least 0");
    require(options.ns_steps > 0, "ns_steps is at least 1");
    for (const Tensor& parameter : parameters) {
      require(parameter.dim() == 2 && parameter.numel() > 0,
              "a parameter of shape " + tensors::shape_to_string(parameter.shape()) +
                  " is no matrix; AdamW takes it");
    }
    add_group(parameters, options.lr, {"momentum_buffer"},
              options.master_weights ? Masters::of_halves : Masters::none);
    options_.push_back(options);
  }
}

void Muon::update(std::size_t group, const Parts& parts) {
  const MuonOptions& options = options_[group];
  for (std::size_t i = 0; i < parts.parameters.size(); ++i) {
    const Tensor parameter(parts.parameters[i]), gradient(parts.gradients[i]),
        momentum(parts.states[0][i]);
    momentum.lerp_(gradient, 1 - options.momentum);
    const Tensor direction =
        options.nesterov ? lerp(gradient, momentum, options.momentum) : momentum;
    const LocalTensor step = orthogonal_part(parts.whole[i], direction.local(), options);
    parameter.mul_(1 - lr(group) * options.weight_decay);
    parameter.sub_(step, rate_of(parts.whole[i].shape(), lr(group), options.rate));
  }
}

}  // namespace dtrun::dtensor::optim
