// Broadcast: all ranks get rank 0's tensor. The size of its sides may be given.
//
//     dtrun --nproc_per_node=4 broadcast [SIZE]
#include <cstdlib>

#include "dtrun/dtrun.h"

using namespace dtrun;

int main(int argc, char** argv) {
  dist::init_process_group(dist::is_nccl_available() ? "nccl" : "cpu");
  const int rank = dist::get_rank();
  const Device device = dist::device();  // this rank's GPU, where there is one
  const std::int64_t size = argc > 1 ? std::atoi(argv[1]) : 2;

  Tensor tensor;
  if (rank == 0) {
    tensor = randn({size, size}, {.seed = 2021}).to(device);
  } else {
    tensor = zeros({size, size}).to(device);
  }

  print("before rank {}: {}\n", rank, tensor);
  dist::broadcast(tensor, /*src=*/0);
  print("after rank {}: {}\n", rank, tensor);

  dist::destroy_process_group();
}
