// Which device is a rank's own. Pure.
#pragma once

#include "dtrun/collectives/backend_spec.h"
#include "dtrun/rendezvous/worker_env.h"
#include "dtrun/tensor/device.h"

namespace dtrun::runtime {

/// The cpu, unless the backends serve CUDA tensors and there are GPUs: then the one whose number is
/// the local rank. The backend staged lets ranks share GPUs: there the local ranks go round.
/// @param gpus how many this process can use
/// @throws Error kUnavailable where there are fewer GPUs than the local rank needs
tensors::Device device_of_rank(const collectives::BackendSpec& backends,
                               const rendezvous::WorkerEnv& env, int gpus);

}  // namespace dtrun::runtime
