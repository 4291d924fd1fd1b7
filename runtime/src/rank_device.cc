#include "rank_device.h"

#include <fmt/core.h>

#include "dtrun/base/error.h"

namespace dtrun::runtime {

tensors::Device device_of_rank(const collectives::BackendSpec& backends,
                               const rendezvous::WorkerEnv& env, int gpus) {
  // Without any GPU the backend itself says best what is missing.
  if (backends.cuda.empty() || gpus == 0) return tensors::kCpu;
  if (backends.cuda == "staged") return {tensors::DeviceType::cuda, env.local_rank % gpus};
  if (env.local_rank < gpus) return {tensors::DeviceType::cuda, env.local_rank};
  throw base::Error(
      base::ErrorCode::kUnavailable,
      fmt::format("rank {} has LOCAL_RANK {}, and there {} here", env.rank, env.local_rank,
                  gpus == 1 ? "is one GPU" : fmt::format("are {} GPUs", gpus)),
      fmt::format("the backend '{}' wants a GPU of its own for every rank", backends.cuda),
      "start at most as many ranks per node as there are GPUs; set LOCAL_RANK where ranks are "
      "started by hand on several nodes; look at CUDA_VISIBLE_DEVICES; or let ranks share GPUs "
      "with "
      "the backend 'staged'");
}

}  // namespace dtrun::runtime
