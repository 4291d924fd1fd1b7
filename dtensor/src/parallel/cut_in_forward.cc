#include "parallel/cut_in_forward.h"

#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/mesh/spec.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/elementwise.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;

[[noreturn]] void refuse(const std::string& name, const Placement& compute, const std::string& what,
                         const std::string& why, const std::string& hint) {
  throw Error(ErrorCode::kInvalidArgument,
              "fully_shard: compute of \"" + name + "\" as " + compute.to_string() + what, why,
              hint);
}

bool is_same_cut(const Placement& one, const Placement& other, std::int64_t dims) {
  const auto dim = [&](const Placement& each) {
    return each.dim() < 0 ? each.dim() + dims : each.dim();
  };
  return one.is_shard() && other.is_shard() && !one.is_ragged() && !other.is_ragged() &&
         dim(one) == dim(other);
}

std::string plan_for(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  const std::string path = dot == std::string::npos ? "" : name.substr(0, dot);
  return "parallelize() on this mesh before, such as {{\"" + path +
         "\", Colwise({.input = Shard(0), .output = Shard(0)})}}; or no `compute`";
}

/// A style on the parameter's module has to bring the samples together. What it has cut says that
/// one stands there.
void check(const std::string& name, const Tensor& parameter, const ParameterWish& wish,
           const DeviceMesh& mesh, const MixedPrecision& precision) {
  const Placement& compute = wish.compute;
  if (!compute.is_shard()) {
    refuse(name, compute, "", "forward sees a parameter whole, or cut as it is kept",
           "Replicate(), or Shard() of one of its dims");
  }
  if (mesh.ndim() != 1) {
    refuse(name, compute, ", on " + mesh.to_string(),
           "its gradient is summed along the axis that cuts it only", "a mesh of one axis");
  }
  if (!is_same_cut(wish.storage, compute, parameter.dim())) {
    refuse(name, compute, ", and storage as " + wish.storage.to_string(),
           "what is cut in forward is not moved before it", "no `storage` for it");
  }
  if (!parameter.is_distributed() || !(parameter.device_mesh() == mesh)) {
    refuse(name, compute, ", which parallelize() has not cut on " + mesh.to_string(),
           "each rank computes on samples of its own: with a part of the parameter that would give "
           "them a part of their result",
           plan_for(name));
  }
  if (!is_same_cut(parameter.placements()[0], compute, parameter.dim())) {
    refuse(name, compute, ", which lies as " + parameter.spec().to_string(),
           "it is computed with as parallelize() has cut it",
           parameter.placements()[0].to_string() + ", or another style");
  }
  if (precision.param.value_or(parameter.dtype()) != parameter.dtype()) {
    refuse(
        name, compute,
        ", with mixed_precision.param " + std::string(tensors::dtype_short_name(*precision.param)),
        "it is computed with in its own dtype", "no `compute` for it, or no mixed_precision.param");
  }
}

}  // namespace

std::set<std::string> cut_in_forward(const nn::Module& module, const ParameterWishes& wishes,
                                     const DeviceMesh& mesh, const MixedPrecision& precision) {
  std::set<std::string> names;
  for (const auto& [name, parameter] : module.named_parameters()) {
    const ParameterWish& wish = wishes.at(name);
    if (wish.compute.is_replicate()) continue;
    check(name, parameter, wish, mesh, precision);
    names.insert(name);
  }
  return names;
}

MeanOfCut::MeanOfCut(const nn::Module& module, const std::set<std::string>& names, int ranks)
    : ranks_(ranks) {
  for (const auto& [name, parameter] : module.named_parameters()) {
    if (names.contains(name)) slots_.push_back({parameter});
  }
}

void MeanOfCut::watch() {
  for (Slot& slot : slots_) {
    if (!slot.hooked.is_new(slot.parameter)) continue;
    slot.parameter.register_hook(
        [ranks = ranks_](const Tensor& gradient) { return gradient / ranks; });
  }
}

}  // namespace dtrun::dtensor
