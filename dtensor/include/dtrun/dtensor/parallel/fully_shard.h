// fully_shard: every rank keeps a part of each parameter, of its gradient and of the optimizer's
// state, and computes on its own samples. A unit's parameters are gathered before its forward and
// before its backward, and given back after; gradients are averaged into the parts. FSDP2's
// fully_shard, ZeRO-3 (Rajbhandari et al., 2020).
//
//     fully_shard(*model, mesh["dp"], {.units = {"blocks.*"}});
//     optim::AdamW optimizer(model->parameters());   // its state is of the parts
//     loss_of((*model)(my_samples)).backward();
//
// Outside of forward the parameters are distributed tensors, Shard(0) along the axis unless
// `storage` says another dim, or Replicate(): norms, clipping and state_dict() know them as such.
// Within forward they are whole.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dtrun/dtensor/mesh/device_mesh.h"
#include "dtrun/dtensor/nn/module.h"

namespace dtrun::dtensor {

/// When a unit gives its whole parameters back.
enum class Reshard : unsigned char {
  after_forward,   ///< and gathers them again for backward: least memory, ZeRO-3
  after_backward,  ///< gathers them once a step: ZeRO-2
};

/// Dtypes of what is computed and sent. Parts, their gradients and the optimizer's state keep the
/// dtype that the parameters have.
struct MixedPrecision {
  std::optional<DType> param = std::nullopt;   ///< of the whole parameters; also sent in it
  std::optional<DType> reduce = std::nullopt;  ///< of gradients while they are averaged; as param
  std::optional<DType> output = std::nullopt;  ///< of what the module gives
  bool cast_forward_inputs = true;             ///< floating point inputs of each unit, to `param`
};

struct FullyShardOptions {
  /// Patterns of module names, as of parallelize(): each module is a unit. What is in none of them,
  /// and parameters that several units have, belong to the module itself, which gives its whole
  /// parameters back after backward only.
  std::vector<std::string> units = {};
  Reshard reshard = Reshard::after_forward;
  /// Units that are gathered ahead, in the order that the first forward took, and back. 0: also a
  /// unit's gradients have been averaged before the next unit is gathered, so that of one unit
  /// alone weights and gradients are whole.
  int prefetch = 1;
  MixedPrecision mixed_precision = {};
  /// How a parameter of that name is kept: cut along any dim, Shard(dim), or whole on every rank,
  /// Replicate(). Not given, or none: Shard(0). Dims that the ranks do not divide are legal. What
  /// is whole is not gathered; its gradients are averaged in one all_reduce a unit and dtype, over
  /// both axes of a hybrid mesh. FSDP2's shard_placement_fn.
  std::function<std::optional<Placement>(const std::string& name, const Tensor& parameter)>
      storage = {};
  /// How forward sees a parameter of that name. Not given, or none: Replicate(), whole. Shard(dim):
  /// cut, as parallelize() has cut it on this very mesh, of one axis, before: for tables and heads
  /// that are larger than their input. It is not gathered. Its style's `input` and `output` are
  /// Shard(0), the ranks' samples, which travel instead, as many of each rank; its gradient becomes
  /// the mean, as others'. Its storage is what it lies as, its dtype is what is computed with.
  /// Other combinations are refused: a rank's samples need the whole parameter.
  std::function<std::optional<Placement>(const std::string& name, const Tensor& parameter)>
      compute = {};
};

/// Parameters become the first rank's, cut; buffers stay whole on every rank. Parameters that
/// parallelize() has cut along other axes are cut once more. Collective, and so are forward and
/// backward afterwards: all ranks call the same units in the same order. A unit that is recomputed
/// is one that checkpoint() is called with, or is part of.
/// @param mesh of one axis, or of two: replicate, shard (hybrid: gathers stay within a line of the
/// second axis, gradients are averaged over both)
/// @throws Error kInvalidArgument for another mesh, parameters distributed along these axes, such
/// without dims that are to be cut, a `storage` that is no dim of its parameter, and a `compute`
/// that cannot be; kNotFound for a pattern that matches no module; kDisagreement, naming the first
/// difference, where the ranks' modules differ. Nothing is changed then
void fully_shard(nn::Module& module, const DeviceMesh& mesh, FullyShardOptions options = {},
                 Tensor::Site site = Tensor::Site::current());

}  // namespace dtrun::dtensor
