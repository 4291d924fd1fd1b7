#include "examples/tutorials.h"

namespace dtrun::test {
namespace {

std::string matrix_of(int value) {
  const std::string row = "[" + std::to_string(value) + "., " + std::to_string(value) + ".]";
  return "tensor([" + row + ",\n        " + row + "])";
}

const std::string kSent =
    "tensor([[-1.5380, -0.0328],\n        [-0.9427, -0.4207]])";  // randn of seed 2021

Blocks before_and_after(const std::string& before_root, const std::string& before_others,
                        const std::string& after) {
  Blocks blocks;
  for (int rank = 0; rank < 4; ++rank) {
    const std::string number = std::to_string(rank);
    const std::string& before = rank == 0 ? before_root : before_others;
    blocks.push_back("before rank " + number + ": " + before + "\n\n");
    blocks.push_back("after rank " + number + ": " + after + "\n\n");
  }
  return blocks;
}

const std::string kGathered = "[tensor([0.]), tensor([1.]), tensor([2.]), tensor([3.])]\n";

}  // namespace

const std::vector<Tutorial>& tutorials() {
  static const std::vector<Tutorial> all = {
      {"multi_process_3", 4, blocks_of_ranks(4, "hello world, {}\n")},
      {"process_group_4", 4,
       blocks_of_ranks(
           4,
           "ProcessGroup(name=group-0, backend=cpu, rank={}, ranks=[0, 1, 2, 3]) - rank: {}\n\n")},
      {"p2p_communication",
       2,
       {"rank 1 before: " + matrix_of(0) + "\n\n", "rank 1 after: " + kSent + "\n\n"}},
      {"p2p_communication_non_blocking", 2, blocks_of_ranks(2, "rank {}: " + kSent + "\n")},
      {"broadcast", 4, before_and_after(kSent, matrix_of(0), kSent)},
      {"broadcast_p2p",
       4,
       {"stage 0 received: tensor([0.])\n", "stage 1 received: tensor([1.])\n",
        "stage 2 received: tensor([2.])\n", "stage 3 received: tensor([3.])\n"}},
      {"reduce_sum", 4, {matrix_of(6) + "\n"}},
      {"reduce_max", 4, {matrix_of(3) + "\n"}},
      {"scatter",
       4,
       {"before rank 0: tensor([0.])\n\n", "before rank 1: tensor([0.])\n\n",
        "before rank 2: tensor([0.])\n\n", "before rank 3: tensor([0.])\n\n",
        "after rank 0: tensor([10.])\n\n", "after rank 1: tensor([20.])\n\n",
        "after rank 2: tensor([30.])\n\n", "after rank 3: tensor([40.])\n\n"}},
      {"scatter_nccl",
       4,
       {"after rank 0: tensor([10.])\n\n", "after rank 1: tensor([20.])\n\n",
        "after rank 2: tensor([30.])\n\n", "after rank 3: tensor([40.])\n\n"}},
      {"gather", 4, {kGathered}},
      {"allreduce_sum", 4, blocks_of_ranks(4, "rank {}: " + matrix_of(6) + "\n\n")},
      {"allreduce_max", 4, blocks_of_ranks(4, "rank {}: " + matrix_of(3) + "\n\n")},
      {"allgather", 4, {kGathered, kGathered, kGathered, kGathered}},
      {"reduce_scatter",
       4,
       {"Before: rank 0 output: tensor([0])\n\n", "Before: rank 1 output: tensor([0])\n\n",
        "Before: rank 2 output: tensor([0])\n\n", "Before: rank 3 output: tensor([0])\n\n",
        "After: rank 0 output: tensor([6])\n\n", "After: rank 1 output: tensor([60])\n\n",
        "After: rank 2 output: tensor([600])\n\n", "After: rank 3 output: tensor([6000])\n\n"}},
  };
  return all;
}

Blocks pieces_of_two_sizes() {
  const std::string threes =
      "splited inputs : (tensor([10., 20., 30.]), tensor([40., 50., 60.]), tensor([70., 80., "
      "90.]), tensor([100.]))\n\n";
  const std::string twos =
      "splited inputs : (tensor([10., 20.]), tensor([30., 40.]), tensor([50., 60.]), tensor([70., "
      "80.]), tensor([ 90., 100.]))\n\n";
  return {"rank: 0, " + threes,
          "rank: 1, " + threes,
          "rank: 2, " + twos,
          "rank: 3, " + twos,
          "after rank 0: tensor([10., 20., 30.])\n\n",
          "after rank 1: tensor([40., 50., 60.])\n\n",
          "after rank 2: tensor([50., 60.])\n\n",
          "after rank 3: tensor([70., 80.])\n\n"};
}

}  // namespace dtrun::test
