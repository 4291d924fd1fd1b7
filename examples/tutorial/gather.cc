// Gather: rank 0 gets one tensor from every rank.
//
//     dtrun --nproc_per_node=4 gather
#include <vector>

#include "dtrun/dtrun.h"

using namespace dtrun;

int main() {
  dist::init_process_group("cpu");
  const int rank = dist::get_rank();

  // rank 0: [0], rank 1: [1], rank 2: [2], rank 3: [3]
  const Tensor input = ones({1}) * rank;

  if (rank == 0) {
    const std::vector<Tensor> outputs_list = {zeros({1}), zeros({1}), zeros({1}), zeros({1})};
    dist::gather(input, outputs_list, /*dst=*/0);
    print(outputs_list);
  } else {
    dist::gather(input, {}, /*dst=*/0);
  }

  dist::destroy_process_group();
}
