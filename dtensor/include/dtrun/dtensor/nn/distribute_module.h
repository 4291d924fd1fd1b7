// distribute_module: a module's tensors on a mesh, and what goes in and comes out of it there.
// torch.distributed.tensor.distribute_module.
//
//     distribute_module(*model, mesh, {
//         .partition = [](const std::string& name, nn::Module& module, const DeviceMesh& mesh) {
//           if (name == "up") module.distribute_parameter("weight", mesh, {Shard(0)});
//         }});
#pragma once

#include <functional>
#include <string>

#include "dtrun/dtensor/mesh/device_mesh.h"
#include "dtrun/dtensor/nn/module.h"

namespace dtrun::dtensor {

struct DistributeModuleOptions {
  /// Called for each module, this one first, with its path; it lays out the parameters and buffers
  /// that are not to be replicated: distribute_parameter().
  std::function<void(const std::string& name, nn::Module& module, const DeviceMesh& mesh)>
      partition = nullptr;
  /// Of each call's inputs: what they shall be. A forward pre-hook.
  std::function<Tensors(nn::Module& module, const Tensors& inputs, const DeviceMesh& mesh)> input =
      nullptr;
  /// Of each call's outputs. A forward hook.
  std::function<Tensors(nn::Module& module, const Tensors& outputs, const DeviceMesh& mesh)>
      output = nullptr;
};

/// All parameters and buffers become distributed ones, replicated where partition leaves them: the
/// first rank's numbers. Gradients that are there are forgotten. They stay the same tensors, so an
/// optimizer that holds them goes on with the distributed ones. Collective. @throws Error
/// kInvalidArgument for a module that was distributed already, and one with tensors on another mesh
void distribute_module(nn::Module& module, const DeviceMesh& mesh,
                       const DistributeModuleOptions& options = {},
                       Tensor::Site site = Tensor::Site::current());

}  // namespace dtrun::dtensor
