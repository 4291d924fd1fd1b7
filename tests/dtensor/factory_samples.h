// A call of every factory of the public headers: what docs/operators.md is made of.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "dtrun/dtensor/autograd/tensor.h"
#include "dtrun/dtensor/mesh/device_mesh.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::dtensor {

struct FactorySample {
  std::string name;
  std::function<Tensor(tensors::TensorOptions)> local;
  std::function<Tensor(const DeviceMesh&, const Placements&)> on_mesh;
  DType dtype = DType::f32;  ///< of the one on a mesh
  bool is_filled = true;     ///< false: its elements are any
};

/// Of [6, 4], or 6 numbers. Each draws from the default random state.
std::vector<FactorySample> factory_samples();

/// In which it makes, on a mesh of one axis and without any communication, what a local call makes:
/// "S(0), S(1), R, P(sum)". Collective.
std::string placements_of(const FactorySample& factory, const DeviceMesh& mesh);

/// "cpu, cuda", where the elements are the same. @param factory runs in a build with CUDA, while
/// SimulatedDevices live
std::string devices_of(const FactorySample& factory);

}  // namespace dtrun::dtensor
