// distribute_module puts a module's parameters and buffers on a mesh, and converts its inputs and
// outputs.
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
  /// Called for each module with its path, this one first. It calls distribute_parameter() for the
  /// parameters and buffers that shall not be replicated.
  std::function<void(const std::string& name, nn::Module& module, const DeviceMesh& mesh)>
      partition = nullptr;
  /// Converts the inputs of each call: a forward pre-hook.
  std::function<Tensors(nn::Module& module, const Tensors& inputs, const DeviceMesh& mesh)> input =
      nullptr;
  /// Converts the outputs of each call: a forward hook.
  std::function<Tensors(nn::Module& module, const Tensors& outputs, const DeviceMesh& mesh)>
      output = nullptr;
};

/// All parameters and buffers become distributed, with the first rank's values; those that
/// partition leaves alone are replicated. Gradients are dropped. The tensors stay the same objects,
/// so that an optimizer that holds them goes on with the distributed ones. Collective. @throws
/// Error kInvalidArgument for a module that was distributed already, and one with tensors on
/// another mesh; kDisagreement where the ranks' modules differ
void distribute_module(nn::Module& module, const DeviceMesh& mesh,
                       const DistributeModuleOptions& options = {},
                       Tensor::Site site = Tensor::Site::current());

}  // namespace dtrun::dtensor
