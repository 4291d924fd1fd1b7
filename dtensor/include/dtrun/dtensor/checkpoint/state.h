// State: what a checkpoint keeps, each thing under a name: tensors, modules, optimizers, schedules,
// data loaders, random state, numbers and texts. It refers to them: load() writes into them.
//
//     std::int64_t step = 0;
//     dcp::State state{{"model", model}, {"optimizer", optimizer}, {"step", step}};
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "dtrun/dtensor/autograd/tensor.h"
#include "dtrun/dtensor/checkpoint/manifest.h"
#include "dtrun/dtensor/data/data_loader.h"
#include "dtrun/dtensor/nn/module.h"
#include "dtrun/dtensor/nn/state_dict.h"
#include "dtrun/dtensor/optim/lr_scheduler.h"
#include "dtrun/dtensor/optim/optimizer.h"

namespace dtrun::dtensor::dcp {

/// What a part of a state has to save. Names within the part; "" is the part's own.
struct Saved {
  nn::StateDict tensors = {};
  Values values = {};       ///< the same on all ranks
  Values rank_values = {};  ///< each rank's own
};

/// What a part of a state gets back.
struct Loaded {
  nn::StateDict tensors = {};  ///< what targets() gave, filled
  Values values = {};
  std::map<std::string, std::vector<Value>> rank_values = {};  ///< by the rank that saved
  int rank = 0;                                                ///< this one, of so many
  int ranks = 1;
};

/// What can be part of a state. A program may have its own.
class Stateful {
 public:
  using NamedTensors = nn::Module::NamedTensors;
  virtual ~Stateful() = default;
  /// @param parameters of all modules of the state, by their names in the checkpoint
  virtual Saved saved(const NamedTensors& parameters) const = 0;
  /// Tensors to be filled, of any layout. Nothing is changed yet. @param names of the checkpoint's
  /// tensors in this part @throws Error kInvalidArgument where they do not fit
  virtual nn::StateDict targets(const std::vector<std::string>& names,
                                const NamedTensors& parameters) = 0;
  virtual void restore(const Loaded& loaded) = 0;
  virtual NamedTensors parameters() const { return {}; }
};

/// This thread's random state. Where as many ranks load it as saved it, each gets its own again;
/// others keep their seed, and go on after as many streams as rank 0 had taken.
struct ThreadRandom {};

class State {
 public:
  struct Entry {
    /// A tensor, local or distributed. A local one is the same on all ranks that have it.
    Entry(std::string its_name, const Tensor& tensor);
    Entry(std::string its_name, const nn::StateDict& tensors);
    /// Its parameters and persistent buffers.
    Entry(std::string its_name, nn::Module& module);
    /// Its states by the parameters' names, where a module of the same State has them, else by
    /// their numbers.
    Entry(std::string its_name, optim::Optimizer& optimizer);
    Entry(std::string its_name, optim::LRScheduler& schedule);
    Entry(std::string its_name, data::DataLoader& loader);
    Entry(std::string its_name, ThreadRandom random);
    Entry(std::string its_name, bool& value);
    Entry(std::string its_name, std::int64_t& value);
    Entry(std::string its_name, double& value);
    Entry(std::string its_name, std::string& value);
    Entry(std::string its_name, Stateful& its_part);
    Entry(std::string its_name, std::shared_ptr<Stateful> its_part);
    /// A ModuleHolder, or another pointer to a module.
    template <typename Pointer>
    requires requires(const Pointer& pointer) {
      { *pointer } -> std::convertible_to<nn::Module&>;
    }
    Entry(std::string its_name, const Pointer& module)
        : Entry(std::move(its_name), static_cast<nn::Module&>(*module)) {}
    /// What has state_dict() and load_state_dict(): GradScaler, ExponentialMovingAverage.
    template <typename T>
    requires(!std::derived_from<T, nn::Module> && !std::derived_from<T, optim::Optimizer> &&
             requires(T & object, const nn::StateDict& state) {
               { object.state_dict() } -> std::same_as<nn::StateDict>;
               object.load_state_dict(state);
             }) Entry(std::string its_name, T& object);

    std::string name;
    std::shared_ptr<Stateful> part;
  };

  State() = default;
  /// @throws Error kInvalidArgument for a name that stands twice
  State(std::initializer_list<Entry> entries);
  void add(Entry entry);

  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
};

/// Tensors of what a part has, by what the checkpoint calls them: "model" and "0.weight" give
/// "model.0.weight".
std::string full_name(const std::string& part, const std::string& name);

/// Of the same shapes and layouts; written to, then given to load_state_dict().
nn::StateDict empty_like(const nn::StateDict& state);

template <typename T>
class StateDictPart : public Stateful {
 public:
  explicit StateDictPart(T& object) : object_(object) {}
  Saved saved(const NamedTensors&) const override { return {.tensors = object_.state_dict()}; }
  nn::StateDict targets(const std::vector<std::string>&, const NamedTensors&) override {
    return empty_like(object_.state_dict());
  }
  void restore(const Loaded& loaded) override { object_.load_state_dict(loaded.tensors); }

 private:
  T& object_;
};

template <typename T>
requires(!std::derived_from<T, nn::Module> && !std::derived_from<T, optim::Optimizer> &&
         requires(T & object, const nn::StateDict& state) {
           { object.state_dict() } -> std::same_as<nn::StateDict>;
           object.load_state_dict(state);
         }) State::Entry::Entry(std::string its_name, T& object)
    : name(std::move(its_name)), part(std::make_shared<StateDictPart<T>>(object)) {}

}  // namespace dtrun::dtensor::dcp
