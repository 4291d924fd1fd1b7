// What an optimizer has to save: its states by the parameters' names, so that they find the same
// parameter where ranks have others of the model's, or more of them.
#include <algorithm>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/dtensor/checkpoint/state.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"

namespace dtrun::dtensor::dcp {

using base::Error;
using base::ErrorCode;

namespace {

const std::string kStates = "state.";

/// Of halves, masters and what belongs to them are f32.
Tensor as_states(const Tensor& parameter) {
  const bool is_half = parameter.dtype() == DType::f16 || parameter.dtype() == DType::bf16;
  return is_half ? parameter.to(DType::f32) : parameter;
}

class OptimizerPart : public Stateful {
 public:
  explicit OptimizerPart(optim::Optimizer& optimizer) : optimizer_(optimizer) {}

  Saved saved(const NamedTensors& parameters) const override {
    Saved all;
    const std::vector<Named> named = named_parameters(parameters);
    for (const auto& [name, tensor] : optimizer_.state_dict()) {
      if (!name.starts_with(kStates)) {
        all.tensors.insert(name, tensor);
        continue;
      }
      const std::size_t dot = name.find('.', kStates.size());
      const std::size_t number = std::stoul(name.substr(kStates.size()));
      all.tensors.insert(kStates + named[number].name + name.substr(dot), tensor);
    }
    return all;
  }

  nn::StateDict targets(const std::vector<std::string>& names,
                        const NamedTensors& parameters) override {
    numbered_.clear();
    nn::StateDict targets;
    for (std::size_t group = 0; group < optimizer_.groups(); ++group) {
      const std::string rate = "param_groups." + std::to_string(group) + ".lr";
      targets.insert(rate, zeros({}, {.dtype = DType::f64}));
      numbered_.emplace_back(rate, rate);
    }
    const std::vector<Named> named = named_parameters(parameters);
    for (std::size_t number = 0; number < named.size(); ++number) {
      const std::string begin = kStates + named[number].name + ".";
      const std::string own = kStates + std::to_string(number) + ".";
      add(begin, own, "step", zeros({}, {.dtype = DType::i64}), targets);
      const auto first = std::ranges::lower_bound(names, begin);
      for (auto place = first; place != names.end() && place->starts_with(begin); ++place) {
        const std::string state = place->substr(begin.size());
        if (state.find('.') == std::string::npos && state != "step")
          add(begin, own, state, zeros_like(as_states(named[number].tensor.detach())), targets);
      }
    }
    return targets;
  }

  void restore(const Loaded& loaded) override {
    nn::StateDict state;
    for (const auto& [name, own] : numbered_) state.insert(own, loaded.tensors.at(name));
    optimizer_.load_state_dict(state);
  }

 private:
  struct Named {
    std::string name;
    Tensor tensor;
  };

  /// By number: the name that a module has for it, else the number.
  std::vector<Named> named_parameters(const NamedTensors& parameters) const {
    std::vector<Named> all;
    for (std::size_t group = 0; group < optimizer_.groups(); ++group) {
      for (const Tensor& parameter : optimizer_.parameters(group)) {
        const auto found = std::ranges::find_if(
            parameters, [&](const auto& entry) { return same(entry.second, parameter); });
        all.push_back(
            {found == parameters.end() ? std::to_string(all.size()) : found->first, parameter});
      }
    }
    return all;
  }
  void add(const std::string& begin, const std::string& own, const std::string& state,
           const Tensor& tensor, nn::StateDict& targets) {
    targets.insert(begin + state, tensor);
    numbered_.emplace_back(begin + state, own + state);
  }

  optim::Optimizer& optimizer_;
  /// The checkpoint's names and the optimizer's.
  std::vector<std::pair<std::string, std::string>> numbered_;
};

}  // namespace

State::Entry::Entry(std::string its_name, optim::Optimizer& optimizer)
    : name(std::move(its_name)), part(std::make_shared<OptimizerPart>(optimizer)) {}

}  // namespace dtrun::dtensor::dcp
