#include "dtrun/dtensor/optim/optimizer.h"

#include <algorithm>
#include <map>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "move/cause.h"
#include "move/move_observer.h"
#include "move/span.h"
#include "nn/load_numbers.h"

namespace dtrun::dtensor::optim {

using base::Error;
using base::ErrorCode;
using tensors::LocalTensor;

namespace {

/// Where the parameter lies. @param f16_factor of the gradients that are f16
LocalTensor gradient_of(const Tensor& parameter, DType dtype, double f16_factor) {
  Tensor gradient = parameter.grad().detach();
  if (parameter.is_distributed() && !(gradient.spec() == parameter.spec()))
    gradient = gradient.redistribute(parameter.placements(), parameter.spec().shard_order());
  LocalTensor local = gradient.local().contiguous().to(dtype);
  if (gradient.dtype() == DType::f16 && f16_factor != 1) Tensor(local).mul_(f16_factor);
  return local;
}

bool is_half(const Tensor& parameter) {
  return parameter.dtype() == DType::f16 || parameter.dtype() == DType::bf16;
}

std::string state_name(std::size_t parameter, const std::string& name) {
  return "state." + std::to_string(parameter) + "." + name;
}
std::string rate_name(std::size_t group) {
  return "param_groups." + std::to_string(group) + ".lr";
}

Tensor count_tensor(std::int64_t count) {
  return full({}, count, {.dtype = DType::i64});
}

}  // namespace

void Optimizer::require(bool holds, const std::string& what, const std::string& remedy) const {
  if (!holds)
    throw Error(ErrorCode::kInvalidArgument, name_ + " got a wrong argument", what, remedy);
}

void Optimizer::add_group(const Tensors& parameters, double lr,
                          std::vector<std::string> state_names, Masters masters) {
  require(!parameters.empty(), "a group has at least one parameter", "a module's parameters()");
  require(lr >= 0, "lr is at least 0");
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::string which =
        "parameter " + std::to_string(i) + " of group " + std::to_string(groups_.size());
    require(parameters[i].defined(), which + " is undefined", "assign to it first");
    require(parameters[i].is_leaf() && parameters[i].requires_grad(),
            which + " is no leaf of which a gradient is wanted",
            "detach().requires_grad_(), or the tensor that it was made of");
    const auto is_it = [&](const Tensor& other) { return same(other, parameters[i]); };
    const auto end = parameters.begin() + static_cast<std::ptrdiff_t>(i);
    const bool stands_twice = std::any_of(parameters.begin(), end, is_it) ||
                              std::ranges::any_of(groups_, [&](const Group& group) {
                                return std::ranges::any_of(group.parameters, is_it);
                              });
    require(!stands_twice, which + " is in the optimizer already", "each parameter once");
  }
  groups_.push_back(
      {parameters, lr, std::move(state_names), masters, std::vector<Slot>(parameters.size())});
}

const Optimizer::Group& Optimizer::at(std::size_t group) const {
  require(group < groups_.size(), "there is no group " + std::to_string(group),
          "a number below " + std::to_string(groups_.size()));
  return groups_[group];
}

void Optimizer::set_lr(double lr, std::size_t group) {
  at(group);
  require(lr >= 0, "lr is at least 0");
  groups_[group].lr = lr;
}

void Optimizer::zero_grad() const {
  for (const Group& group : groups_)
    for (const Tensor& parameter : group.parameters) parameter.set_grad({});
}

Tensors& Optimizer::states_of(Group& group, std::size_t which) const {
  Tensors& states = group.slots[which].states;
  const Tensor parameter = group.parameters[which].detach();
  const bool keeps_master = has_master(group, which);
  // Made at the first step, not with the optimizer: parameters may be distributed or moved in
  // between, and states lie where they lie.
  while (states.size() < group.state_names.size())
    states.push_back(zeros_like(keeps_master ? parameter.to(DType::f32) : parameter));
  if (keeps_master && states.size() == group.state_names.size())
    states.push_back(parameter.to(DType::f32));
  return states;
}

bool Optimizer::has_master(const Group& group, std::size_t which) {
  return group.masters == Masters::of_halves && is_half(group.parameters[which]);
}

std::vector<std::string> Optimizer::names_of(const Group& group, std::size_t which) {
  std::vector<std::string> names = group.state_names;
  if (has_master(group, which)) names.emplace_back("master");
  return names;
}

// A checkpoint gives both: where the parameter is what its master would make, the master has more
// of the number.
void Optimizer::refresh_master(Group& group, std::size_t which) {
  Slot& slot = group.slots[which];
  const LocalTensor& parameter = group.parameters[which].local();
  if (slot.written == parameter.storage()->version()) return;
  const LocalTensor& master = slot.states.back().local();
  const Tensor is_its = eq(Tensor(master.to(parameter.dtype())), Tensor(parameter));
  master.copy_(where(is_its, Tensor(master), Tensor(parameter.to(DType::f32))).local());
}

/// Those that have a gradient, by what one call can do: alike in device type and steps so far.
std::vector<std::vector<std::size_t>> Optimizer::chosen(const Group& group) const {
  std::map<std::pair<tensors::DeviceType, std::int64_t>, std::vector<std::size_t>> alike;
  for (std::size_t i = 0; i < group.parameters.size(); ++i) {
    const Tensor& parameter = group.parameters[i];
    if (parameter.grad().defined())
      alike[{parameter.local().device().type, group.slots[i].steps}].push_back(i);
  }
  std::vector<std::vector<std::size_t>> lists;
  for (auto& [key, list] : alike) lists.push_back(std::move(list));
  return lists;
}

void Optimizer::step(Tensor::Site site) {
  step_with(1, site);
}

void Optimizer::step_with(double f16_factor, const Tensor::Site& site) {
  if (MoveObserver::rehearsing()) {
    throw Error(
        ErrorCode::kUsage, name_ + "'s step() in explain()",
        "it would write the parameters, by gradients that are zeros there",
        "explain() of forward and backward() alone; explain_step() runs a whole step and looks");
  }
  const Span span(Span::Kind::step, name_);
  const Cause cause("the optimizer's step", Cause::Wish::asked, site);
  const NoGrad no_grad;
  for (std::size_t group = 0; group < groups_.size(); ++group) step_group(group, f16_factor);
  // Parameters may be parts of one storage: what they are known by then is the last write to it.
  for (Group& group : groups_) {
    for (std::size_t i = 0; i < group.slots.size(); ++i) {
      if (has_master(group, i) && group.parameters[i].grad().defined())
        group.slots[i].written = group.parameters[i].local().storage()->version();
    }
  }
}

void Optimizer::step_group(std::size_t index, double f16_factor) {
  Group& group = groups_[index];
  for (std::size_t i = 0; i < group.parameters.size(); ++i) {
    const Tensor& parameter = group.parameters[i];
    if (!parameter.grad().defined() || !is_half(parameter) || has_master(group, i)) continue;
    throw Error(ErrorCode::kInvalidArgument,
                name_ + ": parameter " + std::to_string(i) + " of group " + std::to_string(index) +
                    " is " + std::string(tensors::dtype_name(parameter.dtype())),
                "its numbers are too coarse for small steps",
                "{.master_weights = true}, which keeps f32 copies of halves");
  }
  for (const std::vector<std::size_t>& list : chosen(group)) {
    Parts parts;
    parts.states.resize(group.state_names.size());
    for (const std::size_t i : list) {
      const Tensors& states = states_of(group, i);
      const bool keeps_master = has_master(group, i);
      if (keeps_master) refresh_master(group, i);
      const Tensor& changed = keeps_master ? states.back() : group.parameters[i];
      parts.parameters.push_back(changed.local());
      // Kernels write through pointers. Without the count a graph that saved the parameter would
      // use changed numbers unnoticed.
      parts.parameters.back().storage()->count_write();
      parts.gradients.push_back(gradient_of(group.parameters[i], changed.dtype(), f16_factor));
      parts.whole.push_back(changed);
      for (std::size_t s = 0; s < group.state_names.size(); ++s) {
        parts.states[s].push_back(states[s].local());
        parts.states[s].back().storage()->count_write();
      }
    }
    parts.step = group.slots[list.front()].steps + 1;
    update(index, parts);
    for (const std::size_t i : list) {
      group.slots[i].steps = parts.step;
      if (!has_master(group, i)) continue;
      const LocalTensor& parameter = group.parameters[i].local();
      parameter.storage()->count_write();
      parameter.copy_(group.slots[i].states.back().local());
    }
  }
}

std::int64_t Optimizer::state_bytes() const {
  std::int64_t bytes = 0;
  for (const Group& group : groups_) {
    for (std::size_t i = 0; i < group.parameters.size(); ++i) {
      const Tensor& parameter = group.parameters[i];
      const DType dtype = has_master(group, i) ? DType::f32 : parameter.dtype();
      bytes += static_cast<std::int64_t>(names_of(group, i).size() * tensors::item_size(dtype)) *
               parameter.local().numel();
    }
  }
  return bytes;
}

nn::StateDict Optimizer::state_dict() const {
  nn::StateDict state;
  std::size_t number = 0;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    state.insert(rate_name(g), full({}, group.lr, {.dtype = DType::f64}));
    for (std::size_t i = 0; i < group.slots.size(); ++i, ++number) {
      const Slot& slot = group.slots[i];
      state.insert(state_name(number, "step"), count_tensor(slot.steps));
      const std::vector<std::string> names = names_of(group, i);
      for (std::size_t s = 0; s < slot.states.size(); ++s)
        state.insert(state_name(number, names[s]), slot.states[s]);
    }
  }
  return state;
}

void Optimizer::check_known(const nn::StateDict& state) const {
  const std::string remedy = "the state_dict() of an optimizer of the same parameters";
  std::map<std::string, const Tensor*> known;
  std::size_t number = 0;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    known[rate_name(g)] = nullptr;
    require(state.contains(rate_name(g)), "the state has no " + rate_name(g), remedy);
    for (std::size_t i = 0; i < groups_[g].parameters.size(); ++i) {
      const Tensor& parameter = groups_[g].parameters[i];
      known[state_name(number, "step")] = nullptr;
      require(state.contains(state_name(number, "step")),
              "the state has no " + state_name(number, "step"), remedy);
      // A parameter that has not stepped yet has no states, and a checkpoint of it has none.
      const bool has_stepped = state.at(state_name(number, "step")).item() > 0;
      for (const std::string& name : names_of(groups_[g], i)) {
        known[state_name(number, name)] = &parameter;
        require(!has_stepped || state.contains(state_name(number, name)),
                "the state has no " + state_name(number, name), remedy);
      }
      ++number;
    }
  }
  for (const auto& [name, tensor] : state) {
    const auto found = known.find(name);
    require(found != known.end(), "the state has " + name + ", which this optimizer does not have",
            remedy);
    const Shape wanted = found->second == nullptr ? Shape() : found->second->shape();
    require(tensor.shape() == wanted,
            name + " is " + tensors::shape_to_string(tensor.shape()) + ", not " +
                tensors::shape_to_string(wanted),
            remedy);
  }
}

void Optimizer::load_state_dict(const nn::StateDict& state) {
  check_known(state);
  std::size_t number = 0;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    group.lr = state.at(rate_name(g)).item();
    for (std::size_t i = 0; i < group.slots.size(); ++i, ++number) {
      group.slots[i].steps = static_cast<std::int64_t>(state.at(state_name(number, "step")).item());
      if (group.slots[i].steps == 0) {
        group.slots[i].states.clear();
        continue;
      }
      const Tensors& states = states_of(group, i);
      const std::vector<std::string> names = names_of(group, i);
      for (std::size_t s = 0; s < states.size(); ++s)
        nn::load_numbers(states[s], state.at(state_name(number, names[s])));
      // Whether the parameter has the master's numbers is not known: the next step compares them.
      group.slots[i].written.reset();
    }
  }
}

}  // namespace dtrun::dtensor::optim
