// A message without send and recv, as DeepSpeed's pipeline does it where a backend lacks them: a
// broadcast in a group of two.
//
//     dtrun --nproc_per_node=4 broadcast_p2p
#include <map>
#include <utility>

#include "dtrun/dtrun.h"

using namespace dtrun;

// A group for every pair of neighbouring stages. All ranks make all groups, in the same order.
std::map<std::pair<int, int>, dist::ProcessGroup> make_pair_groups() {
  std::map<std::pair<int, int>, dist::ProcessGroup> groups;
  for (int stage = 0; stage + 1 < dist::get_world_size(); ++stage)
    groups[{stage, stage + 1}] = dist::new_group({stage, stage + 1});
  return groups;
}

int main() {
  dist::init_process_group(dist::is_nccl_available() ? "nccl" : "cpu");
  const int stage = dist::get_rank();
  const auto groups = make_pair_groups();

  // From stage to stage: each adds one to what it was sent.
  const Tensor tensor = zeros({1}).to(dist::device());
  if (stage > 0) dist::broadcast(tensor, stage - 1, {.group = groups.at({stage - 1, stage})});
  print("stage {} received: {}", stage, tensor);
  tensor.copy_(tensor + 1);
  if (stage + 1 < dist::get_world_size())
    dist::broadcast(tensor, stage, {.group = groups.at({stage, stage + 1})});

  dist::destroy_process_group();
}
