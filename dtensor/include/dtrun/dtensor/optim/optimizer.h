// Optimizer: changes parameters by their gradients. torch.optim.Optimizer. Parameters and states
// may lie on any mesh: a step computes on this rank's parts alone, in one pass over the elements of
// all of them. One thread's.
//
//     optim::AdamW optimizer(model->parameters(), {.lr = 1e-3});
//     loss.backward();
//     optimizer.step();
//     optimizer.zero_grad();
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dtrun/dtensor/autograd/tensor.h"
#include "dtrun/dtensor/nn/state_dict.h"

namespace dtrun::dtensor::optim {

/// Parameters that have options of their own.
template <typename Options>
struct ParameterGroup {
  Tensors parameters;
  Options options;
};

/// Whether f16 and bf16 parameters are changed through f32 copies of them, which are states.
enum class Masters : unsigned char { none, of_halves };

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Parameters without a gradient stay as they are. A gradient that lies otherwise than its
  /// parameter is redistributed: then it is collective over the mesh. @throws Error
  /// kInvalidArgument for dtypes other than f32 and f64, but for halves with masters; nothing of
  /// that group is written then
  void step(Tensor::Site site = Tensor::Site::current());
  /// Forgets the gradients.
  void zero_grad() const;

  std::size_t groups() const { return groups_.size(); }
  const Tensors& parameters(std::size_t group = 0) const { return at(group).parameters; }
  double lr(std::size_t group = 0) const { return at(group).lr; }
  void set_lr(double lr, std::size_t group = 0);

  /// What the states of this rank's parts take, in bytes; also those that the first step will make.
  std::int64_t state_bytes() const;

  /// The states by name, "state.3.exp_avg" of the parameter number 3 of all groups, the count of
  /// its steps, "state.3.step", and "param_groups.0.lr". They share the optimizer's elements.
  nn::StateDict state_dict() const;
  /// Writes the numbers; distributed and local ones may take each other's place. @throws Error
  /// kInvalidArgument for a name or a shape that does not fit; nothing is written then
  void load_state_dict(const nn::StateDict& state);

 protected:
  /// What is changed at once; parallel lists of this rank's parts.
  struct Parts {
    std::vector<LocalTensor> parameters;
    std::vector<LocalTensor> gradients;
    std::vector<std::vector<LocalTensor>> states;  ///< in the order of the names
    Tensors whole;          ///< the parameters, for updates that need more than this rank's part
    std::int64_t step = 1;  ///< the first one is 1
  };

  /// @param name for messages
  explicit Optimizer(std::string name) : name_(std::move(name)) {}
  /// @param state_names of what is kept of each parameter; zeros at first
  /// @throws Error kInvalidArgument: no parameters, one that stands there already, no leaf, or that
  /// wants no gradient; a rate below 0
  void add_group(const Tensors& parameters, double lr, std::vector<std::string> state_names,
                 Masters masters = Masters::none);
  virtual void update(std::size_t group, const Parts& parts) = 0;
  void require(bool holds, const std::string& what, const std::string& remedy = {}) const;

 private:
  struct Slot {
    std::int64_t steps = 0;
    Tensors states;                        ///< made at the first step; a master is the last one
    std::optional<std::uint32_t> written;  ///< version of the parameter that its master has made
  };
  struct Group {
    Tensors parameters;
    double lr;
    std::vector<std::string> state_names;
    Masters masters;
    std::vector<Slot> slots;  ///< one per parameter
  };
  const Group& at(std::size_t group) const;
  friend class GradScaler;
  /// @param f16_factor by which f16 gradients are multiplied once they are f32
  void step_with(double f16_factor, const Tensor::Site& site);
  void step_group(std::size_t index, double f16_factor);
  static bool has_master(const Group& group, std::size_t which);
  static std::vector<std::string> names_of(const Group& group, std::size_t which);
  /// Takes over what others have written to the parameter since.
  static void refresh_master(Group& group, std::size_t which);
  std::vector<std::vector<std::size_t>> chosen(const Group& group) const;
  Tensors& states_of(Group& group, std::size_t which) const;
  void check_known(const nn::StateDict& state) const;

  const std::string name_;
  std::vector<Group> groups_;
};

}  // namespace dtrun::dtensor::optim
