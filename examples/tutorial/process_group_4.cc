// Under the launcher, the rank and the world's size come from dist.
//
//     dtrun --nproc_per_node=4 process_group_4
#include <numeric>
#include <vector>

#include "dtrun/dtrun.h"

using namespace dtrun;

int main() {
  dist::init_process_group(dist::is_nccl_available() ? "nccl" : "cpu");

  std::vector<int> ranks(static_cast<std::size_t>(dist::get_world_size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  const dist::ProcessGroup group = dist::new_group(ranks);
  print("{} - rank: {}\n", group, dist::get_rank());

  dist::destroy_process_group();
}
