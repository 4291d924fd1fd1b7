#include "dtrun/dtensor/optim/adam.h"

#include "dtrun/tensor/ops/optimizer.h"

namespace dtrun::dtensor::optim {
namespace {

const std::vector<std::string> kStates = {"exp_avg", "exp_avg_sq"};

/// What is wrong with the options; empty: nothing.
template <typename Options>
std::string fault(const Options& options) {
  const auto is_beta = [](double beta) { return beta >= 0 && beta < 1; };
  if (!is_beta(options.beta1) || !is_beta(options.beta2)) return "betas are in [0, 1)";
  if (!(options.eps >= 0)) return "eps is at least 0";
  if (!(options.weight_decay >= 0)) return "weight_decay is at least 0";
  return "";
}

template <typename Options>
tensors::AdamStep step_of(const Options& options, double lr, std::int64_t step,
                          tensors::AdamStep::Decay decay) {
  return {.lr = lr,
          .beta1 = options.beta1,
          .beta2 = options.beta2,
          .eps = options.eps,
          .weight_decay = options.weight_decay,
          .step = step,
          .decay = decay};
}

}  // namespace

Adam::Adam(const Tensors& parameters, const AdamOptions& options)
    : Adam(std::vector<ParameterGroup<AdamOptions>>{{parameters, options}}) {}
Adam::Adam(const std::vector<ParameterGroup<AdamOptions>>& groups) : Optimizer("Adam") {
  for (const auto& [parameters, options] : groups) {
    require(fault(options).empty(), fault(options));
    add_group(parameters, options.lr, kStates,
              options.master_weights ? Masters::of_halves : Masters::none);
    options_.push_back(options);
  }
}

void Adam::update(std::size_t group, const Parts& parts) {
  tensors::adam_step_(
      parts.parameters, parts.gradients, parts.states[0], parts.states[1],
      step_of(options_[group], lr(group), parts.step, tensors::AdamStep::Decay::of_gradient));
}

AdamW::AdamW(const Tensors& parameters, const AdamWOptions& options)
    : AdamW(std::vector<ParameterGroup<AdamWOptions>>{{parameters, options}}) {}
AdamW::AdamW(const std::vector<ParameterGroup<AdamWOptions>>& groups) : Optimizer("AdamW") {
  for (const auto& [parameters, options] : groups) {
    require(fault(options).empty(), fault(options));
    add_group(parameters, options.lr, kStates,
              options.master_weights ? Masters::of_halves : Masters::none);
    options_.push_back(options);
  }
}

void AdamW::update(std::size_t group, const Parts& parts) {
  tensors::adam_step_(
      parts.parameters, parts.gradients, parts.states[0], parts.states[1],
      step_of(options_[group], lr(group), parts.step, tensors::AdamStep::Decay::decoupled));
}

}  // namespace dtrun::dtensor::optim
