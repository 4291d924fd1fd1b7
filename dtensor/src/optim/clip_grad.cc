#include "dtrun/dtensor/optim/clip_grad.h"

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "move/cause.h"

namespace dtrun::dtensor::optim {

using base::Error;
using base::ErrorCode;

namespace {

/// What is summed together: the parts that lie on one mesh, cut along the same axes of it.
struct Cut {
  DeviceMesh mesh;
  std::vector<bool> along;  ///< an axis
  Tensors parts;            ///< this rank's, those that have elements
};

/// In the order in which they come, which is the same on all ranks.
std::vector<Cut> cuts_of(const Tensors& tensors) {
  std::vector<Cut> cuts;
  for (const Tensor& tensor : tensors) {
    Cut cut;
    if (tensor.is_distributed()) {
      cut.mesh = tensor.device_mesh();
      if (!cut.mesh.has_this_rank()) continue;
      for (const Placement& placement : tensor.placements())
        cut.along.push_back(placement.is_shard());
    }
    auto place = cuts.begin();
    while (place != cuts.end() &&
           !(place->mesh.body() == cut.mesh.body() && place->along == cut.along))
      ++place;
    if (place == cuts.end()) place = cuts.insert(cuts.end(), std::move(cut));
    if (tensor.local().numel() > 0) place->parts.push_back(Tensor(tensor.local()));
  }
  return cuts;
}

/// Of these tensors as one vector, in f64.
Tensor norm_of(const Tensors& parts, double norm_type, Device device) {
  const tensors::TensorOptions number{.dtype = DType::f64, .device = device};
  if (parts.empty()) return zeros({}, number);
  Tensors norms;
  for (const Tensor& part : parts) norms.push_back(norm(part, norm_type).to(DType::f64).to(device));
  return norms.size() == 1 ? norms[0] : norm(stack(norms), norm_type);
}

/// Of all ranks of the mesh.
Tensor norm_of(const Cut& cut, double norm_type, Device device) {
  const Tensor own = norm_of(cut.parts, norm_type, device);
  Placements placements;
  bool is_cut = false;
  const bool is_largest = std::isinf(norm_type);
  for (const bool along : cut.along) {
    is_cut = is_cut || along;
    placements.push_back(!along ? Replicate()
                                : Partial(is_largest ? ReduceOp::max : ReduceOp::sum));
  }
  if (!is_cut) return own;
  const Tensor term = is_largest ? own : pow(own, norm_type);
  const Tensor all =
      Tensor::from_local(term, cut.mesh, placements, {.shape = {}, .has_shape = true})
          .full_tensor();
  return is_largest ? all : pow(all, 1 / norm_type);
}

void require_reduced(const Tensor& tensor) {
  if (!tensor.is_distributed()) return;
  for (const Placement& placement : tensor.placements()) {
    if (placement.is_partial()) {
      throw Error(ErrorCode::kInvalidArgument, "the norm of " + tensor.spec().to_string(),
                  "each rank has a term of it only", "redistribute() it first");
    }
  }
}

Tensors gradients_of(const Tensors& parameters) {
  Tensors gradients;
  for (const Tensor& parameter : parameters) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad().detach());
  }
  return gradients;
}

}  // namespace

Tensor get_total_norm(const Tensors& tensors, double norm_type,
                      const std::optional<DeviceMesh>& stages, Tensor::Site site) {
  const Cause cause("get_total_norm", Cause::Wish::asked, site);
  const NoGrad no_grad;
  if (!(norm_type > 0)) {
    throw Error(ErrorCode::kInvalidArgument, "a norm of type " + std::to_string(norm_type),
                "it is above 0, or infinite",
                "2 for the Euclidean norm, inf for the greatest element");
  }
  for (const Tensor& tensor : tensors) require_reduced(tensor);
  const bool is_any = !tensors.empty();
  const Device device = is_any ? tensors[0].local().device() : tensors::kCpu;
  Tensors norms;
  for (const Cut& cut : cuts_of(tensors)) norms.push_back(norm_of(cut, norm_type, device));
  Tensor total = norm_of(norms, norm_type, device);
  if (stages) total = norm_of(Cut{*stages, {true}, {total}}, norm_type, device);
  return total.to(is_any ? tensors[0].dtype() : DType::f32);
}

Tensor clip_grad_norm_(const Tensors& parameters, double max_norm,
                       const ClipGradNormOptions& options, Tensor::Site site) {
  const Cause cause("clip_grad_norm_", Cause::Wish::asked, site);
  const NoGrad no_grad;
  const Tensors gradients = gradients_of(parameters);
  const Tensor total = get_total_norm(gradients, options.norm_type, options.stages);
  if (options.error_if_nonfinite && !std::isfinite(total.item())) {
    throw Error(ErrorCode::kInvalidArgument,
                "the gradients' norm is " + std::to_string(total.item()),
                "a gradient is nan or infinite", "a lower learning rate, or scaling of the loss");
  }
  const Tensor factor = clamp(max_norm / (total + 1e-6), std::nullopt, 1.0);
  // A factor of 1 changes no bit; to know it costs nothing here.
  if (total.device().is_cpu() && factor.item() == 1) return total;
  for (const Tensor& gradient : gradients) {
    const Tensor part(gradient.local());
    part.mul_(factor.to(part.dtype()).to(part.device()));
  }
  return total;
}

void clip_grad_value_(const Tensors& parameters, double value) {
  const NoGrad no_grad;
  for (const Tensor& gradient : gradients_of(parameters))
    Tensor(gradient.local()).clamp_(-value, value);
}

}  // namespace dtrun::dtensor::optim
