// Scatter: rank 0 gives every rank one of its tensors.
//
//     dtrun --nproc_per_node=4 scatter
#include "dtrun/dtrun.h"

using namespace dtrun;

int main() {
  dist::init_process_group("cpu");
  const int rank = dist::get_rank();

  const Tensor output = zeros({1});
  print("before rank {}: {}\n", rank, output);

  if (rank == 0) {
    const Tensor inputs = tensor({10.0, 20.0, 30.0, 40.0});
    dist::scatter(output, split(inputs, /*split_size=*/1, /*dim=*/0), /*src=*/0);
  } else {
    dist::scatter(output, {}, /*src=*/0);
  }

  print("after rank {}: {}\n", rank, output);
  dist::destroy_process_group();
}
