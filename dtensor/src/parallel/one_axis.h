// What a parallel call demands of its mesh, and of a model that others have made parallel before.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "dtrun/dtensor/mesh/device_mesh.h"
#include "dtrun/dtensor/nn/module.h"

namespace dtrun::dtensor {

/// The axis along which `call` works. @throws Error kInvalidArgument for a mesh of several axes
const ProcessGroup& group_of_one_axis(const char* call, const DeviceMesh& mesh);

/// Whether a distributed tensor's mesh holds this rank and others of the group.
bool shares_ranks(const Tensor& tensor, const ProcessGroup& group);
bool share_ranks(const std::vector<int>& some, const std::vector<int>& others);

/// @throws Error kInvalidArgument where a parameter or buffer is distributed over ranks of the
/// group, unless it is named
void check_free_of(const char* call, const nn::Module& module, const ProcessGroup& group,
                   const std::set<std::string>& but = {});

}  // namespace dtrun::dtensor
