// parallelize: modules cut along one mesh axis, each in its own style: tensor and sequence
// parallelism. torch.distributed.tensor.parallel.parallelize_module.
//
//     parallelize(*model, mesh["tp"], {{"blocks.*.up", Colwise()}, {"blocks.*.down", Rowwise()}});
//
// Between the modules flow plain tensors, each rank's own part: a style takes them as what its
// `input` says, and gives its output as such again. Distributed tensors may come in as well.
// Scores that are cut along the classes need no gather: a Colwise head with
// {.result = Result::distributed} keeps them so, and loss_parallel() takes them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dtrun/dtensor/layout/placement.h"
#include "dtrun/dtensor/mesh/device_mesh.h"
#include "dtrun/dtensor/nn/module.h"
#include "dtrun/dtensor/ops/rows.h"

namespace dtrun::dtensor {

/// What leaves a module.
enum class Result : unsigned char {
  local,        ///< this rank's part, without a mesh
  distributed,  ///< a tensor of the mesh
};

/// What a style does to one module: lays out its parameters, and hooks its inputs and outputs.
class ParallelStyle {
 public:
  using Apply = std::function<void(const std::string& path, nn::Module& module,
                                   const DeviceMesh& mesh, const Tensor::Site& site)>;
  /// How one of the module's own parameters will lie.
  using Layout = std::function<Placement(nn::Module& module, const std::string& parameter)>;
  /// One of one's own: distribute_parameter() and hooks.
  /// @param layout what apply does to every parameter. With it parallelize() finds another style
  /// for the same tensor before anything is changed
  ParallelStyle(std::string name, Apply apply, Layout layout = nullptr)
      : name_(std::move(name)), apply_(std::move(apply)), layout_(std::move(layout)) {}

  const std::string& name() const { return name_; }
  /// Null where it is not known.
  const Layout& layout() const { return layout_; }
  void apply(const std::string& path, nn::Module& module, const DeviceMesh& mesh,
             const Tensor::Site& site) const {
    apply_(path, module, mesh, site);
  }

 private:
  std::string name_;
  Apply apply_;
  Layout layout_;
};

struct StyleOptions {
  /// How a plain tensor that comes in lies. Replicate() is refused in the forward of a model of
  /// which these ranks have different samples, by fully_shard() on the same axis. Default:
  /// Replicate(); of Rowwise on a Linear Shard(-1), of Sequence Shard(1).
  std::optional<Placement> input = std::nullopt;
  /// How the output shall lie. Default: Shard(-1) of Colwise, Replicate() of Rowwise, Shard(1) of
  /// Sequence.
  std::optional<Placement> output = std::nullopt;
  Result result = Result::local;
};

/// A Linear's output features, or an Embedding's columns, are cut.
ParallelStyle Colwise(StyleOptions options = {});
/// A Linear's input features, or an Embedding's rows, are cut: each rank computes a summand.
ParallelStyle Rowwise(StyleOptions options = {});
/// Every rank has all parameters and computes for a part of the sequence (dim 1): norms, dropout.
ParallelStyle Sequence(StyleOptions options = {});

struct PrepareOptions {
  /// One for each tensor that is prepared: how a plain one lies; none: it is left as it is.
  std::vector<std::optional<Placement>> given;
  /// One for each: how it shall lie.
  std::vector<std::optional<Placement>> wanted;
  Result result = Result::local;
};
/// What comes into a module of any kind, before its forward; parameters are left alone.
ParallelStyle PrepareInput(PrepareOptions options);
/// What comes out.
ParallelStyle PrepareOutput(PrepareOptions options);
/// First the one, then the other.
ParallelStyle PrepareInputOutput(PrepareOptions input, PrepareOptions output);

/// Patterns of module names, and what happens to the modules: `*` stands for parts of one name,
/// `**` for any number of names.
using ParallelPlan = std::vector<std::pair<std::string, ParallelStyle>>;

/// Parameters stay the same tensors and become the first rank's numbers, cut. Parameters that no
/// style names stay plain: every rank has all of them. Collective over the mesh.
/// @param mesh of one axis; a slice, such as mesh["tp"]
/// @throws Error kNotFound for a pattern that matches no module; kInvalidArgument for a mesh of
/// several axes, two styles for one module, two layouts for one parameter, which two modules may
/// have or an earlier call cut, and a module that the style does not know; kDisagreement, naming
/// the first difference, where the ranks' modules or plans differ. Nothing is changed then
void parallelize(nn::Module& module, const DeviceMesh& mesh, const ParallelPlan& plan,
                 Tensor::Site site = Tensor::Site::current());

/// cross_entropy() of scores on a mesh, cut along the classes or not, and targets that every rank
/// has. A plain `target` and plain `options.weight` count as replicated; the loss is plain.
/// torch.distributed.tensor.parallel.loss_parallel. Collective over the mesh.
/// @throws Error kInvalidArgument for scores without a mesh
Tensor loss_parallel(const Tensor& logits, const Tensor& target, LossOptions options = {},
                     Tensor::Site site = Tensor::Site::current());

}  // namespace dtrun::dtensor
