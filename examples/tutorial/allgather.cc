// All-gather: every rank gets one tensor from every rank.
//
//     dtrun --nproc_per_node=4 allgather
#include <vector>

#include "dtrun/dtrun.h"

using namespace dtrun;

int main() {
  dist::init_process_group(dist::is_nccl_available() ? "nccl" : "cpu");
  const int rank = dist::get_rank();
  const Device device = dist::device();

  // rank 0: [0], rank 1: [1], rank 2: [2], rank 3: [3]
  const Tensor input = ones({1}).to(device) * rank;

  const std::vector<Tensor> outputs_list = {
      zeros({1}, {.device = device}),
      zeros({1}, {.device = device}),
      zeros({1}, {.device = device}),
      zeros({1}, {.device = device}),
  };
  dist::all_gather(outputs_list, input);
  print(outputs_list);

  dist::destroy_process_group();
}
