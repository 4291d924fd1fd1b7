// Point to point without waiting: the tensor must not be touched before wait() has returned.
//
//     dtrun --nproc_per_node=2 p2p_communication_non_blocking
#include <stdexcept>

#include "dtrun/dtrun.h"

using namespace dtrun;

int main() {
  dist::init_process_group("cpu");

  Tensor tensor;
  dist::Work request;
  if (dist::get_rank() == 0) {
    tensor = randn({2, 2}, {.seed = 2021});
    request = dist::isend(tensor, /*dst=*/1);
  } else if (dist::get_rank() == 1) {
    tensor = zeros({2, 2});
    request = dist::irecv(tensor, /*src=*/0);
  } else {
    throw std::runtime_error("wrong rank");
  }

  request.wait();

  print("rank {}: {}", dist::get_rank(), tensor);
  dist::destroy_process_group();
}
