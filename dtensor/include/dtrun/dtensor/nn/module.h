// Module: a part of a model. It has named parameters, buffers and modules, and a forward.
// torch.nn.Module. Shared by pointer, never copied. For use by one thread.
//
//     struct Mlp : nn::Module {
//       nn::Linear up = register_module("up", nn::Linear(64, 256));
//       nn::Linear down = register_module("down", nn::Linear(256, 10));
//       Tensor forward(const Tensor& x) override { return down(relu(up(x))); }
//     };
//     const nn::ModuleHolder<Mlp> model;
//     const Tensor y = model(x);
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dtrun/collectives/call_observer.h"
#include "dtrun/dtensor/autograd/tensor.h"
#include "dtrun/dtensor/nn/state_dict.h"

namespace dtrun::dtensor {

struct DistributeModuleOptions;

namespace nn {
class Module;
}
void distribute_module(nn::Module& module, const DeviceMesh& mesh,
                       const DistributeModuleOptions& options, Tensor::Site site);

namespace nn {

struct ParameterOptions {
  bool requires_grad = true;
};
struct BufferOptions {
  bool persistent = true;  ///< part of state_dict()
};
struct LoadOptions {
  bool strict = true;  ///< names that are missing or that nobody expects are refused
};
struct IncompatibleKeys {
  std::vector<std::string> missing;     ///< the module has them, the dict does not
  std::vector<std::string> unexpected;  ///< the dict has them, the module does not
};

/// Called before forward. If it returns tensors, they replace the inputs.
using ForwardPreHook = std::function<Tensors(Module& module, const Tensors& inputs)>;
/// Called after forward. If it returns tensors, they replace the outputs.
using ForwardHook =
    std::function<Tensors(Module& module, const Tensors& inputs, const Tensors& outputs)>;

/// Called when forward has ended, also by an exception. It runs before the forward hooks and gets
/// no outputs. What it throws takes the place of the forward's exception.
using ForwardEndHook = std::function<void(Module& module)>;

/// Removes a hook. The hook stays where the handle is dropped without it.
class HookHandle {
 public:
  explicit HookHandle(std::function<void()> remove) : remove_(std::move(remove)) {}
  void remove() const { remove_(); }

 private:
  std::function<void()> remove_;
};

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // What it computes.
  /// From one tensor to one tensor. A module overrides this or forward_all(). Call it through
  /// operator(), which runs the hooks.
  virtual Tensor forward(const Tensor& input);
  /// From or to several tensors.
  virtual Tensors forward_all(const Tensors& inputs);
  /// @return the first of its outputs
  template <std::convertible_to<Tensor>... More>
  Tensor operator()(const Tensor& input, const More&... more) {
    if constexpr (sizeof...(More) == 0) {
      if (!is_watched()) return forward(input);
    }
    return first_in(call({input, more...}));
  }
  /// All of its outputs.
  Tensors call(const Tensors& inputs);

  // What it has. Names are not empty, have no dot, and are not used for anything else here.
  // @throws Error kInvalidArgument
  /// Registers a leaf that wants a gradient. An undefined tensor registers an empty place, such as
  /// the bias of a Linear without one.
  Tensor register_parameter(const std::string& name, const Tensor& tensor,
                            ParameterOptions options = {});
  /// Registers a tensor that is saved and moved with the module but not trained.
  Tensor register_buffer(const std::string& name, const Tensor& tensor, BufferOptions options = {});
  /// @param module a shared_ptr to one, or a ModuleHolder
  template <typename Pointer>
  Pointer register_module(const std::string& name, const Pointer& module) {
    add_child(name, module);
    return module;
  }

  // Of this module and all modules within, in the order of registration. A tensor with several
  // names comes once, under its first name.
  using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
  Tensors parameters() const;
  Tensors buffers() const;
  NamedTensors named_parameters() const;
  NamedTensors named_buffers() const;
  /// "" is this one; "layers.0".
  std::vector<std::pair<std::string, Module*>> named_modules();
  /// Those registered here.
  const std::vector<std::pair<std::string, std::shared_ptr<Module>>>& named_children() const {
    return children_;
  }
  /// By its path: "layers.0.weight". @throws Error kNotFound naming those there are
  Tensor get_parameter(const std::string& path) const;
  Module& get_submodule(const std::string& path);
  /// Parameters of this module alone.
  NamedTensors own_parameters() const;
  NamedTensors own_buffers() const;

  // Saving and loading.
  /// Parameters and persistent buffers, outside the graph; they share the module's elements.
  StateDict state_dict() const;
  /// Writes the values into the module's tensors, which keep their dtype, device and layout. A
  /// local tensor in `state` is the whole one, the same on every rank; a distributed one is
  /// redistributed. Nothing is written if anything is refused. @throws Error kInvalidArgument for
  /// names or shapes that do not fit
  IncompatibleKeys load_state_dict(const StateDict& state, LoadOptions options = {});

  // Changes of the whole module. Tensors stay the same objects: whoever holds a parameter sees the
  // change.
  void train() { set_training(Mode::train); }
  void eval() { set_training(Mode::eval); }
  bool is_training() const { return mode_ == Mode::train; }
  /// Drops the gradients.
  void zero_grad() const;
  void requires_grad_(bool requires_grad = true) const;
  /// @throws Error kInvalidArgument for what lies on a mesh
  void to(Device device);
  /// Floating point ones. @throws Error kInvalidArgument for another dtype
  void to(DType dtype);
  /// Distributes a parameter or buffer of this module: the first rank's values, without the
  /// gradient. Collective. set_data() on the tensor changes the layout again. @throws Error
  /// kInvalidArgument if it is distributed in another way already, kNotFound for an unknown name
  void distribute_parameter(const std::string& name, const DeviceMesh& mesh,
                            const Placements& placements,
                            Tensor::Site site = Tensor::Site::current());
  /// Calls the function for the modules within, then for this one.
  void apply(const std::function<void(Module&)>& function);

  HookHandle register_forward_pre_hook(ForwardPreHook hook);
  HookHandle register_forward_hook(ForwardHook hook);
  HookHandle register_forward_end_hook(ForwardEndHook hook);

  /// This module as a derived class, or null: as<Linear>(), as<LinearModule>().
  template <typename Kind>
  auto* as() {
    if constexpr (requires { typename Kind::ContainedType; }) {
      return dynamic_cast<typename Kind::ContainedType*>(this);
    } else {
      return dynamic_cast<Kind*>(this);
    }
  }

  /// Its class, without namespaces and a last "Module": "Linear".
  virtual std::string name() const;
  /// Between the parentheses of to_string().
  virtual std::string extra_repr() const { return ""; }
  /// As PyTorch's repr.
  std::string to_string() const;

 protected:
  /// "(0): Linear(...)", one for each child.
  virtual std::vector<std::string> child_lines() const;

 private:
  friend void dtensor::distribute_module(Module& module, const DeviceMesh& mesh,
                                         const DistributeModuleOptions& options, Tensor::Site site);
  enum class Mode : std::uint8_t { train, eval };
  enum class Kind : std::uint8_t { parameter, buffer, passing_buffer };
  struct Owned {
    std::string name;
    Tensor tensor;
    Kind kind;
  };
  struct Place {
    std::string path;
    Module* module;
  };
  struct Hooks {
    std::uint64_t next = 0;
    std::map<std::uint64_t, ForwardPreHook> before;
    std::map<std::uint64_t, ForwardHook> after;
    std::map<std::uint64_t, ForwardEndHook> at_end;
  };
  Tensors forward_between(const Hooks& hooks, Tensors& given);

  /// By a hook or a counter.
  bool is_watched() const {
    return hooks_ != nullptr || collectives::CallObserver::innermost() != nullptr;
  }
  Tensor first_in(Tensors outputs) const;
  void add_child(const std::string& name, std::shared_ptr<Module> module);
  void check_name(const char* call, const std::string& name) const;
  void set_training(Mode mode);
  void replace_tensors(const std::function<Tensor(const Tensor&)>& change) const;
  NamedTensors parameters_and_buffers() const;
  Hooks& hooks();
  void append_below(const std::string& path, std::vector<Place>& places) const;
  /// All modules within, each as often as it is registered.
  std::vector<Place> places_below() const;
  NamedTensors own_tensors(const std::function<bool(Kind)>& wanted) const;
  /// Of this module and those within, each as often as it is registered.
  NamedTensors named_tensors(const std::function<bool(Kind)>& wanted) const;

  std::vector<Owned> owned_;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> children_;
  std::shared_ptr<Hooks> hooks_;  ///< none until the first hook
  Mode mode_ = Mode::train;
  bool is_on_mesh_ = false;    ///< by distribute_module()
  bool forward_asks_ = false;  ///< that of this class, for one tensor
};

std::ostream& operator<<(std::ostream& out, const Module& module);

}  // namespace nn
}  // namespace dtrun::dtensor
