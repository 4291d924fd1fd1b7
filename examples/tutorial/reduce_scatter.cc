// Reduce-scatter: rank r gets the sum of all ranks' r-th tensors.
//
//     dtrun --nproc_per_node=4 reduce_scatter
#include <vector>

#include "dtrun/dtrun.h"

using namespace dtrun;

int main() {
  dist::init_process_group(dist::is_nccl_available() ? "nccl" : "cpu");
  const int rank = dist::get_rank();
  const Device device = dist::device();

  // rank 0: [0, 0, 0, 0], rank 1: [1, 10, 100, 1000], rank 2: [2, 20, 200, 2000], ...
  const Tensor input = tensor({1, 10, 100, 1000}).to(device) * rank;
  const std::vector<Tensor> input_list = split(input, /*split_size=*/1, /*dim=*/0);

  const Tensor output = tensor({0}).to(device);
  print("Before: rank {} output: {}\n", rank, output);

  dist::reduce_scatter(output, input_list, dist::ReduceOp::sum);

  print("After: rank {} output: {}\n", rank, output);
  dist::destroy_process_group();
}
