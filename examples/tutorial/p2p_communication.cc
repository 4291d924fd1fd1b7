// Point to point: rank 0 sends a tensor to rank 1.
//
//     dtrun --nproc_per_node=2 p2p_communication
#include <stdexcept>

#include "dtrun/dtrun.h"

using namespace dtrun;

int main() {
  dist::init_process_group("cpu");  // "gloo" and "mpi" would do as well

  if (dist::get_rank() == 0) {
    const Tensor tensor = randn({2, 2}, {.seed = 2021});
    dist::send(tensor, /*dst=*/1);
  } else if (dist::get_rank() == 1) {
    const Tensor tensor = zeros({2, 2});
    print("rank 1 before: {}\n", tensor);
    dist::recv(tensor, /*src=*/0);
    print("rank 1 after: {}\n", tensor);
  } else {
    throw std::runtime_error("wrong rank");
  }

  dist::destroy_process_group();
}
