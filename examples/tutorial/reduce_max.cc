// Reduce: rank 0 gets the maximum of all ranks' tensors.
//
//     dtrun --nproc_per_node=4 reduce_max
#include "dtrun/dtrun.h"

using namespace dtrun;

int main() {
  dist::init_process_group(dist::is_nccl_available() ? "nccl" : "cpu");
  const int rank = dist::get_rank();

  // rank 0: [[0, 0], [0, 0]], rank 1: [[1, 1], [1, 1]], rank 2: [[2, 2], [2, 2]], ...
  const Tensor tensor = ones({2, 2}).to(dist::device()) * rank;

  dist::reduce(tensor, /*dst=*/0, dist::ReduceOp::max);

  if (rank == 0) print(tensor);
  dist::destroy_process_group();
}
