// Collectives of ranks whose CUDA devices are SimulatedDevices: the staged backend with what the
// simulation has in place of CUDA.
#pragma once

namespace dtrun::dtensor {

/// Registers the backend "simulated" for CUDA tensors, once: "cpu:cpu,cuda:simulated".
void register_simulated_staging();

}  // namespace dtrun::dtensor
