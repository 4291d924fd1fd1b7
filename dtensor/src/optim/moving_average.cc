#include "dtrun/dtensor/optim/moving_average.h"

#include <string>

#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "nn/load_numbers.h"

namespace dtrun::dtensor::optim {

using base::Error;
using base::ErrorCode;

ExponentialMovingAverage::ExponentialMovingAverage(const nn::Module& module, double decay)
    : decay_(decay), parameters_(module.named_parameters()) {
  if (!(decay >= 0 && decay < 1)) {
    throw Error(ErrorCode::kInvalidArgument,
                "an ExponentialMovingAverage with decay " + std::to_string(decay),
                "it is the average's own share", "a number in [0, 1)");
  }
  const NoGrad no_grad;
  for (const auto& [name, parameter] : parameters_) averages_.push_back(parameter.detach().clone());
}

void ExponentialMovingAverage::check_places() const {
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    const auto& [name, parameter] = parameters_[i];
    if (parameter.local().shape() == averages_[i].local().shape()) continue;
    throw Error(ErrorCode::kInvalidArgument,
                "the average of \"" + name + "\", which lies on this rank as " +
                    tensors::shape_to_string(parameter.local().shape()) + " now, and as " +
                    tensors::shape_to_string(averages_[i].local().shape()) + " before",
                "", "make it after parallelize(), fully_shard() and the like");
  }
}

void ExponentialMovingAverage::update() {
  check_places();
  const NoGrad no_grad;
  const double share = updates_++ == 0 ? 1 : 1 - decay_;
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    const Tensor average(averages_[i].local()), parameter(parameters_[i].second.local());
    if (share == 1 || !tensors::is_floating_point(parameter.dtype())) {
      average.copy_(parameter);
    } else {
      average.lerp_(parameter, share);
    }
  }
}

ExponentialMovingAverage::Applied::Applied(const ExponentialMovingAverage& average)
    : average_(average) {
  average.check_places();
  const NoGrad no_grad;
  for (std::size_t i = 0; i < average.averages_.size(); ++i) {
    const Tensor parameter(average.parameters_[i].second.local());
    own_.push_back(parameter.clone());
    parameter.copy_(average.averages_[i].local());
  }
}

ExponentialMovingAverage::Applied::~Applied() {
  const NoGrad no_grad;
  for (std::size_t i = 0; i < own_.size(); ++i)
    Tensor(average_.parameters_[i].second.local()).copy_(own_[i]);
}

nn::StateDict ExponentialMovingAverage::state_dict() const {
  nn::StateDict state;
  for (std::size_t i = 0; i < averages_.size(); ++i)
    state.insert(parameters_[i].first, averages_[i]);
  state.insert("updates", full({}, updates_, {.dtype = DType::i64}));
  return state;
}

void ExponentialMovingAverage::load_state_dict(const nn::StateDict& state) {
  const auto updates = static_cast<std::int64_t>(state.at("updates").item());
  for (const auto& [name, parameter] : parameters_) {
    if (state.at(name).shape() == parameter.shape()) continue;
    throw Error(ErrorCode::kInvalidArgument,
                "the average of \"" + name + "\" is " +
                    tensors::shape_to_string(state.at(name).shape()) + ", not " +
                    tensors::shape_to_string(parameter.shape()),
                "the state was saved for another model", "the state of the same model");
  }
  for (std::size_t i = 0; i < averages_.size(); ++i)
    nn::load_numbers(averages_[i], state.at(parameters_[i].first));
  updates_ = updates;
}

}  // namespace dtrun::dtensor::optim
