#include "dtrun/dtensor/nn/distribute_module.h"

#include "autograd/deferred.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/mesh/spec.h"
#include "dtrun/dtensor/ops/creation.h"
#include "nn/model_agreement.h"
#include "nn/name_list.h"

namespace dtrun::dtensor {

using base::Error;
using base::ErrorCode;

namespace nn {

void Module::distribute_parameter(const std::string& name, const DeviceMesh& mesh,
                                  const Placements& placements, Tensor::Site site) {
  for (const Owned& owned : owned_) {
    if (owned.name != name || !owned.tensor.defined()) continue;
    const Tensor& tensor = owned.tensor;
    if (tensor.is_distributed()) {
      // A tensor that several modules have.
      if (tensor.spec() == make_spec(mesh, placements, tensor.shape(), tensor.dtype())) return;
      throw Error(ErrorCode::kInvalidArgument,
                  "distribute_parameter(\"" + name + "\") of " + this->name() + " as " +
                      placements_to_string(placements) + ", which is " + tensor.spec().to_string(),
                  "it is distributed already", "redistribute() and set_data() lay it out anew");
    }
    const NoGrad no_grad;
    if (tensor.requires_grad()) tensor.set_grad({});
    if (Deferred::is(tensor)) {
      Deferred::fill(tensor, empty(tensor.shape(), mesh, placements, tensor.dtype()), mesh.group(),
                     site);
    } else {
      tensor.set_data(distribute_tensor(tensor.detach(), mesh, placements, {}, site));
    }
    return;
  }
  std::vector<std::string> names;
  for (const Owned& owned : owned_) names.push_back(owned.name);
  throw Error(ErrorCode::kNotFound,
              "distribute_parameter(\"" + name + "\") of " + this->name() +
                  ", which has no such parameter or buffer",
              "it has " + name_list(names),
              "one of these; partition gets each module within by itself");
}

}  // namespace nn

namespace {

void replicate_rest(const std::string& path, nn::Module& module, const DeviceMesh& mesh,
                    const Tensor::Site& site) {
  nn::Module::NamedTensors own = module.own_parameters();
  for (const auto& entry : module.own_buffers()) own.push_back(entry);
  for (const auto& [name, tensor] : own) {
    if (!tensor.is_distributed()) {
      module.distribute_parameter(
          name, mesh, Placements(static_cast<std::size_t>(mesh.ndim()), Replicate()), site);
    } else if (tensor.device_mesh() != mesh) {
      throw Error(ErrorCode::kInvalidArgument,
                  "distribute_module on " + mesh.to_string() + " of a module whose " +
                      (path.empty() ? "" : path + ".") + name + " lies on " +
                      tensor.device_mesh().to_string(),
                  "what a module computes with lies on one mesh",
                  "partition on the mesh that is given");
    }
  }
}

}  // namespace

void distribute_module(nn::Module& module, const DeviceMesh& mesh,
                       const DistributeModuleOptions& options, Tensor::Site site) {
  if (module.is_on_mesh_) {
    throw Error(ErrorCode::kInvalidArgument, "distribute_module of " + module.name(),
                "it was distributed by an earlier call, whose hooks it has",
                "one call for the whole model");
  }
  if (mesh.has_this_rank())
    check_same_model("distribute_module", module, mesh.group(), site, "", mesh.device());
  module.is_on_mesh_ = true;
  for (const auto& [path, within] : module.named_modules()) {
    if (options.partition) options.partition(path, *within, mesh);
    replicate_rest(path, *within, mesh, site);
  }
  if (options.input) {
    module.register_forward_pre_hook(
        [mesh, input = options.input](nn::Module& called, const Tensors& inputs) {
          return input(called, inputs, mesh);
        });
  }
  if (options.output) {
    module.register_forward_hook([mesh, output = options.output](nn::Module& called, const Tensors&,
                                                                 const Tensors& outputs) {
      return output(called, outputs, mesh);
    });
  }
}

}  // namespace dtrun::dtensor
