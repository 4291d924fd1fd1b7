// Whether all ranks of a group have the same model, asked once when it is distributed or made
// parallel.
#pragma once

#include <optional>
#include <string>

#include "dtrun/dtensor/mesh/device_mesh.h"
#include "dtrun/dtensor/nn/module.h"

namespace dtrun::dtensor {

/// Compares names, shapes, dtypes and layouts of parameters and buffers, and which of them want a
/// gradient. Collective. @param more lines that shall be the same as well. @param device of what
/// is sent; none: that of the module's tensors. @throws Error kDisagreement on all ranks, naming
/// the first difference
void check_same_model(const char* call, const nn::Module& module, const ProcessGroup& group,
                      const Tensor::Site& site, const std::string& more = "",
                      std::optional<tensors::Device> device = std::nullopt);

}  // namespace dtrun::dtensor
