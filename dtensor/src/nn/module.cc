#include "dtrun/dtensor/nn/module.h"

#include <algorithm>
#include <exception>
#include <set>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/tensor/dtype.h"
#include "nn/module_section.h"
#include "nn/name_list.h"

namespace dtrun::dtensor::nn {

using base::Error;
using base::ErrorCode;

namespace {

std::string joined(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

}  // namespace

// Each is made of the other: a module overrides one of them.
Tensor Module::forward(const Tensor& input) {
  struct Asking {
    explicit Asking(bool& its_flag) : flag(its_flag), before(std::exchange(flag, true)) {}
    ~Asking() { flag = before; }
    bool& flag;
    const bool before;
  } const asking(forward_asks_);
  return first_in(forward_all({input}));
}

Tensors Module::forward_all(const Tensors& inputs) {
  // The flag is set while forward() asks here: then neither of them is overridden, and each would
  // call the other for ever.
  if (forward_asks_ || inputs.size() != 1) {
    throw Error(ErrorCode::kInvalidArgument,
                name() + " was called with " + std::to_string(inputs.size()) +
                    (inputs.size() == 1 ? " tensor" : " tensors"),
                "it has no forward for that",
                "override forward(), or forward_all() for several tensors");
  }
  return {forward(inputs[0])};
}

Tensor Module::first_in(Tensors outputs) const {
  if (!outputs.empty()) return std::move(outputs[0]);
  throw Error(ErrorCode::kInvalidArgument, name() + " gave no tensor",
              "its forward_all() returned none", "call() takes what there is");
}

Tensors Module::call(const Tensors& inputs) {
  const ModuleSection section(*this);
  if (hooks_ == nullptr) return forward_all(inputs);
  // Copies: a hook may register another one, or take itself away.
  const Hooks hooks = *hooks_;
  Tensors given = inputs;
  Tensors outputs = forward_between(hooks, given);
  for (const auto& [id, hook] : hooks.after) {
    Tensors changed = hook(*this, given, outputs);
    if (!changed.empty()) outputs = std::move(changed);
  }
  return outputs;
}

/// The hooks before forward, forward, and those at its end.
Tensors Module::forward_between(const Hooks& hooks, Tensors& given) {
  // All of them run: each undoes what one before forward has done.
  const auto end = [&] {
    std::exception_ptr first;
    for (const auto& [id, hook] : hooks.at_end) {
      try {
        hook(*this);
      } catch (...) {
        if (!first) first = std::current_exception();
      }
    }
    if (first) std::rethrow_exception(first);
  };
  Tensors outputs;
  try {
    for (const auto& [id, hook] : hooks.before) {
      Tensors changed = hook(*this, given);
      if (!changed.empty()) given = std::move(changed);
    }
    outputs = forward_all(given);
  } catch (...) {
    end();
    throw;
  }
  end();
  return outputs;
}

void Module::check_name(const char* call, const std::string& name) const {
  const std::string what = std::string(call) + "(\"" + name + "\") of " + this->name();
  if (name.empty() || name.find('.') != std::string::npos) {
    throw Error(
        ErrorCode::kInvalidArgument, what,
        name.empty() ? "a name is not empty" : "a dot parts a module's name from its parent's",
        "a name like \"weight\", or \"0\"");
  }
  const auto is_it = [&](const auto& pair) { return pair.first == name; };
  for (const Owned& owned : owned_) {
    if (owned.name != name) continue;
    throw Error(
        ErrorCode::kInvalidArgument, what,
        owned.kind == Kind::parameter ? "it has a parameter of that name"
                                      : "it has a buffer of that name",
        "another name; to change its numbers copy_() into it, to change what it is set_data()");
  }
  if (std::any_of(children_.begin(), children_.end(), is_it)) {
    throw Error(ErrorCode::kInvalidArgument, what, "it has a module of that name", "another name");
  }
}

Tensor Module::register_parameter(const std::string& name, const Tensor& tensor,
                                  ParameterOptions options) {
  check_name("register_parameter", name);
  if (tensor.defined()) {
    if (!tensor.is_leaf()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "register_parameter(\"" + name + "\") of " + this->name() + " with what " +
                      tensor.grad_fn() + " has made",
                  "a parameter is a leaf, which gets the gradient", "detach() it");
    }
    tensor.requires_grad_(options.requires_grad);
  }
  owned_.push_back({name, tensor, Kind::parameter});
  return tensor;
}

Tensor Module::register_buffer(const std::string& name, const Tensor& tensor,
                               BufferOptions options) {
  check_name("register_buffer", name);
  owned_.push_back({name, tensor, options.persistent ? Kind::buffer : Kind::passing_buffer});
  return tensor;
}

void Module::add_child(const std::string& name, std::shared_ptr<Module> module) {
  check_name("register_module", name);
  if (module == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "register_module(\"" + name + "\") of " + this->name(),
                "there is no module: it was made of nullptr", "make it first");
  }
  for (const auto& [path, within] : module->named_modules()) {
    // A cycle would keep itself alive, and every walk through the modules would go on for ever.
    if (within != this) continue;
    throw Error(ErrorCode::kInvalidArgument, "register_module(\"" + name + "\") of " + this->name(),
                "the module would be within itself", "a module of its own");
  }
  children_.emplace_back(name, std::move(module));
}

void Module::append_below(const std::string& path, std::vector<Place>& places) const {
  for (const auto& [name, child] : children_) {
    places.push_back({joined(path, name), child.get()});
    child->append_below(joined(path, name), places);
  }
}

std::vector<Module::Place> Module::places_below() const {
  std::vector<Place> places;
  append_below("", places);
  return places;
}

std::vector<std::pair<std::string, Module*>> Module::named_modules() {
  std::vector<std::pair<std::string, Module*>> modules = {{"", this}};
  std::set<const Module*> seen;
  for (const Place& place : places_below()) {
    // A module that stands in two places is listed once, by its first path, as in PyTorch.
    if (seen.insert(place.module).second) modules.emplace_back(place.path, place.module);
  }
  return modules;
}

// Parameters first, as PyTorch's state_dict has them.
Module::NamedTensors Module::own_tensors(const std::function<bool(Kind)>& wanted) const {
  NamedTensors own;
  for (const bool are_parameters : {true, false}) {
    for (const Owned& owned : owned_) {
      if (!owned.tensor.defined() || !wanted(owned.kind)) continue;
      if ((owned.kind == Kind::parameter) == are_parameters)
        own.emplace_back(owned.name, owned.tensor);
    }
  }
  return own;
}

Module::NamedTensors Module::named_tensors(const std::function<bool(Kind)>& wanted) const {
  NamedTensors tensors = own_tensors(wanted);
  for (const Place& place : places_below()) {
    for (const auto& [name, tensor] : place.module->own_tensors(wanted))
      tensors.emplace_back(joined(place.path, name), tensor);
  }
  return tensors;
}

namespace {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

NamedTensors once_each(const NamedTensors& all) {
  NamedTensors once;
  for (const auto& [name, tensor] : all) {
    const auto is_it = [&, &own = tensor](const auto& pair) { return same(pair.second, own); };
    if (std::none_of(once.begin(), once.end(), is_it)) once.emplace_back(name, tensor);
  }
  return once;
}

Tensors without_names(const NamedTensors& named) {
  Tensors tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}

std::vector<std::string> names_in(const NamedTensors& named) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : named) names.push_back(name);
  return names;
}

}  // namespace

NamedTensors Module::named_parameters() const {
  return once_each(named_tensors([](Kind kind) { return kind == Kind::parameter; }));
}
NamedTensors Module::named_buffers() const {
  return once_each(named_tensors([](Kind kind) { return kind != Kind::parameter; }));
}
Tensors Module::parameters() const {
  return without_names(named_parameters());
}
Tensors Module::buffers() const {
  return without_names(named_buffers());
}

NamedTensors Module::own_parameters() const {
  return own_tensors([](Kind kind) { return kind == Kind::parameter; });
}
NamedTensors Module::own_buffers() const {
  return own_tensors([](Kind kind) { return kind != Kind::parameter; });
}

Tensor Module::get_parameter(const std::string& path) const {
  const NamedTensors all = named_tensors([](Kind kind) { return kind == Kind::parameter; });
  for (const auto& [name, tensor] : all) {
    if (name == path) return tensor;
  }
  throw Error(ErrorCode::kNotFound, name() + " has no parameter \"" + path + "\"",
              "it has " + name_list(names_in(all)), "one of these");
}

Module& Module::get_submodule(const std::string& path) {
  if (path.empty()) return *this;
  const std::vector<Place> places = places_below();
  std::vector<std::string> paths;
  for (const Place& place : places) {
    if (place.path == path) return *place.module;
    paths.push_back(place.path);
  }
  throw Error(ErrorCode::kNotFound, name() + " has no module \"" + path + "\"",
              "it has " + name_list(paths), "one of these");
}

void Module::set_training(Mode mode) {
  mode_ = mode;
  for (const auto& [name, child] : children_) child->set_training(mode);
}

void Module::zero_grad() const {
  for (const Tensor& parameter : parameters()) {
    if (parameter.requires_grad()) parameter.set_grad({});
  }
}

void Module::requires_grad_(bool requires_grad) const {
  for (const Tensor& parameter : parameters()) parameter.requires_grad_(requires_grad);
}

void Module::apply(const std::function<void(Module&)>& function) {
  for (const auto& [name, child] : children_) child->apply(function);
  function(*this);
}

Module::Hooks& Module::hooks() {
  if (hooks_ == nullptr) hooks_ = std::make_shared<Hooks>();
  return *hooks_;
}

HookHandle Module::register_forward_pre_hook(ForwardPreHook hook) {
  const std::uint64_t id = hooks().next++;
  hooks_->before.emplace(id, std::move(hook));
  return HookHandle([id, hooks = std::weak_ptr<Hooks>(hooks_)] {
    if (const auto held = hooks.lock()) held->before.erase(id);
  });
}

HookHandle Module::register_forward_hook(ForwardHook hook) {
  const std::uint64_t id = hooks().next++;
  hooks_->after.emplace(id, std::move(hook));
  return HookHandle([id, hooks = std::weak_ptr<Hooks>(hooks_)] {
    if (const auto held = hooks.lock()) held->after.erase(id);
  });
}

HookHandle Module::register_forward_end_hook(ForwardEndHook hook) {
  const std::uint64_t id = hooks().next++;
  hooks_->at_end.emplace(id, std::move(hook));
  return HookHandle([id, hooks = std::weak_ptr<Hooks>(hooks_)] {
    if (const auto held = hooks.lock()) held->at_end.erase(id);
  });
}

}  // namespace dtrun::dtensor::nn
