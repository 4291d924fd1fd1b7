// DTensor: distribute_tensor() cuts a tensor over the ranks, full_tensor() puts it together again.
//
//     dtrun --nproc_per_node=4 full_tensor_example
#include "dtrun/dtrun.h"

using namespace dtrun;

int main() {
  dist::init_process_group();
  const int rank = dist::get_rank();
  const int world_size = dist::get_world_size();
  const DeviceMesh mesh = dist::init_device_mesh("cpu", {world_size});

  // Only rank 0 knows the values at first.
  Tensor full_tensor = empty({world_size});
  if (rank == 0) {
    full_tensor = arange(world_size, {.dtype = DType::f32});
    print("[Rank {}] Original full tensor: {}", rank, full_tensor);
  }
  dist::broadcast(full_tensor, /*src=*/0);
  print("[Rank {}] After broadcast, full tensor: {}", rank, full_tensor);

  const DTensor dtensor = distribute_tensor(full_tensor, mesh, {Shard(0)});
  print("[Rank {}] Local shard: {}", rank, dtensor.to_local());
  print("[Rank {}] DTensor full_tensor: {}", rank, dtensor.full_tensor());

  dist::destroy_process_group();
}
