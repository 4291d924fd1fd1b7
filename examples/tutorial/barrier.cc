// Barrier: who comes first waits until all have come.
//
//     dtrun --nproc_per_node=4 barrier
#include <chrono>
#include <thread>

#include "dtrun/dtrun.h"

using namespace dtrun;

int main() {
  dist::init_process_group(dist::is_nccl_available() ? "nccl" : "cpu");
  const int rank = dist::get_rank();

  if (rank == 0) {
    int seconds = 0;
    while (seconds <= 3) {
      std::this_thread::sleep_for(std::chrono::seconds(1));
      ++seconds;
      print("rank 0 - seconds: {}\n", seconds);
    }
  }

  print("rank {}: no-barrier\n", rank);
  dist::barrier();
  print("rank {}: barrier\n", rank);

  dist::destroy_process_group();
}
