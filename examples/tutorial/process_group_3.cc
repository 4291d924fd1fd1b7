// Process groups in processes that the program itself started.
//
//     process_group_3
#include <cstdlib>
#include <numeric>
#include <vector>

#include "dtrun/dtrun.h"

using namespace dtrun;

void fn(int rank, int world_size) {
  dist::init_process_group({
      .backend = dist::is_nccl_available() ? "nccl" : "cpu",
      .rank = rank,
      .world_size = world_size,
  });
  std::vector<int> ranks(static_cast<std::size_t>(world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  const dist::ProcessGroup group = dist::new_group(ranks);
  print("{} - rank: {}", group, rank);
  dist::destroy_process_group();
}
DTRUN_MP_FUNCTION(fn);

int main() {
  mp::run_if_child();

  setenv("MASTER_ADDR", "localhost", 1);
  setenv("MASTER_PORT", "29500", 1);
  setenv("WORLD_SIZE", "4", 1);

  mp::spawn(fn, mp::args(4),  // world_size
            {.nprocs = 4, .join = true, .daemon = false, .start_method = "spawn"});
}
