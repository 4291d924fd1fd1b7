// Whether all ranks of a group have the same model, asked once when it is made parallel.
#pragma once

#include <set>
#include <string>

#include "dtrun/dtensor/mesh/device_mesh.h"
#include "dtrun/dtensor/nn/module.h"

namespace dtrun::dtensor {

/// Compares names, shapes, dtypes and layouts of parameters and buffers, and which of them want a
/// gradient. Collective. @param more lines that shall be the same as well. @throws Error
/// kDisagreement on all ranks, naming the first difference
void check_same_model(const char* call, const nn::Module& module, const ProcessGroup& group,
                      const Tensor::Site& site, const std::string& more = "");

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
