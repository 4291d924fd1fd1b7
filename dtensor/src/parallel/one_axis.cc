#include "parallel/one_axis.h"

#include <algorithm>

#include "dtrun/base/error.h"

namespace dtrun::dtensor {

using base::Error;
using base::ErrorCode;

const ProcessGroup& group_of_one_axis(const char* call, const DeviceMesh& mesh) {
  if (mesh.ndim() == 1) return mesh.group(0);
  throw Error(ErrorCode::kInvalidArgument,
              std::string(call) + " on " + mesh.to_string() + ", which has " +
                  std::to_string(mesh.ndim()) + " axes",
              "it works along one of them",
              "mesh[\"" + mesh.axis_names()[0] + "\"], a slice of one axis");
}

bool share_ranks(const std::vector<int>& some, const std::vector<int>& others) {
  return std::ranges::count_if(
             others, [&](int rank) { return std::ranges::find(some, rank) != some.end(); }) > 1;
}

bool shares_ranks(const Tensor& tensor, const ProcessGroup& group) {
  if (group.size() == 1) return false;
  return share_ranks(group.global_ranks(), tensor.device_mesh().ranks());
}

void check_free_of(const char* call, const nn::Module& module, const ProcessGroup& group,
                   const std::set<std::string>& but) {
  const auto check = [&](const std::string& name, const Tensor& tensor) {
    if (but.contains(name)) return;
    if (!tensor.is_distributed() || !shares_ranks(tensor, group)) return;
    throw Error(ErrorCode::kInvalidArgument,
                std::string(call) + ": \"" + name + "\" is distributed already, " +
                    tensor.spec().to_string(),
                "its mesh holds the ranks of this axis",
                "parallelize() on a slice of the other axes, such as mesh[\"tp\"]");
  };
  for (const auto& [name, tensor] : module.named_parameters()) check(name, tensor);
  for (const auto& [name, tensor] : module.named_buffers()) check(name, tensor);
}

}  // namespace dtrun::dtensor
