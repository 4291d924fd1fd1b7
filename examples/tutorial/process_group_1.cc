// Fails on purpose: nobody has said where the ranks meet. process_group_2 mends it.
//
//     process_group_1
#include "dtrun/dtrun.h"

using namespace dtrun;

int main() {
  dist::init_process_group({
      .backend = dist::is_nccl_available() ? "nccl" : "cpu",
      .rank = 0,
      .world_size = 1,
  });

  const dist::ProcessGroup process_group = dist::new_group({0});
  print(process_group);

  dist::destroy_process_group();
}
