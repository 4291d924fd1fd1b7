// A job of one process without a launcher: the addresses are set by hand.
//
//     process_group_2
#include <cstdlib>

#include "dtrun/dtrun.h"

using namespace dtrun;

int main() {
  // Usually set outside of the program.
  setenv("RANK", "0", 1);
  setenv("LOCAL_RANK", "0", 1);
  setenv("WORLD_SIZE", "1", 1);

  // Where the ranks meet: rank 0 serves the store there.
  setenv("MASTER_ADDR", "localhost", 1);
  setenv("MASTER_PORT", "29500", 1);

  dist::init_process_group({
      .backend = dist::is_nccl_available() ? "nccl" : "cpu",
      .rank = 0,
      .world_size = 1,
  });

  const dist::ProcessGroup process_group = dist::new_group({0});
  print(process_group);

  dist::destroy_process_group();
}
