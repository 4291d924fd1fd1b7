// Every rank sends its local shard to rank 0, which concatenates them: what full_tensor() does, by
// hand.
//
//     dtrun --nproc_per_node=4 gather_shards_and_concat
#include <vector>

#include "dtrun/dtrun.h"

using namespace dtrun;

int main() {
  dist::init_process_group();
  const int rank = dist::get_rank();
  const int world_size = dist::get_world_size();
  const DeviceMesh mesh = dist::init_device_mesh("cpu", {world_size});

  Tensor full_tensor = empty({world_size});
  if (rank == 0) {
    full_tensor = arange(world_size, {.dtype = DType::f32});
    print("[Rank {}] Original full tensor: {}", rank, full_tensor);
  }
  dist::broadcast(full_tensor, /*src=*/0);

  const DTensor dtensor = distribute_tensor(full_tensor, mesh, {Shard(0)});
  const Tensor local_shard = dtensor.to_local();
  print("[Rank {}] Local shard: {}", rank, local_shard);

  if (rank != 0) {
    print("[Rank {}] Sending local shard to rank 0 by dist.send()", rank);
    dist::send(local_shard, /*dst=*/0);
  } else {
    std::vector<Tensor> shards = {local_shard};
    for (int source = 1; source < world_size; ++source) {
      const Tensor shard = empty(local_shard.shape());
      dist::recv(shard, source);
      print("[Rank {}] Received shard from rank {}, shard: {}", rank, source, shard);
      shards.push_back(shard);
    }
    print("[Rank {}] Gathered full tensor: {}", rank, cat(shards));
  }

  dist::destroy_process_group();
}
