// All-reduce: every rank gets the sum of all ranks' tensors.
//
//     dtrun --nproc_per_node=4 allreduce_sum
#include "dtrun/dtrun.h"

using namespace dtrun;

int main() {
  dist::init_process_group(dist::is_nccl_available() ? "nccl" : "cpu");
  const int rank = dist::get_rank();

  // rank 0: [[0, 0], [0, 0]], rank 1: [[1, 1], [1, 1]], rank 2: [[2, 2], [2, 2]], ...
  const Tensor tensor = ones({2, 2}).to(dist::device()) * rank;

  dist::all_reduce(tensor, dist::ReduceOp::sum);

  print("rank {}: {}\n", rank, tensor);
  dist::destroy_process_group();
}
