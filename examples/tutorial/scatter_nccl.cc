// Scatter by hand: every rank knows all inputs and takes its own. With a SIZE, of ten numbers in
// pieces of that size, which the ranks need not agree on.
//
//     dtrun --nproc_per_node=4 scatter_nccl [SIZE]
#include <cstdlib>
#include <string>
#include <vector>

#include "dtrun/dtrun.h"

using namespace dtrun;

// Python's split returns a tuple, which prints in parentheses.
std::string tuple(const std::vector<Tensor>& pieces) {
  std::string text;
  for (const Tensor& piece : pieces) text += (text.empty() ? "" : ", ") + piece.to_string();
  return "(" + text + ")";
}

int main(int argc, char** argv) {
  dist::init_process_group(dist::is_nccl_available() ? "nccl" : "cpu");
  const int rank = dist::get_rank();

  std::vector<Tensor> pieces;
  if (argc > 1) {
    const Tensor inputs = tensor({10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0});
    pieces = split(inputs, std::atoi(argv[1]), /*dim=*/-1);
    print("rank: {}, splited inputs : {}\n", rank, tuple(pieces));
  } else {
    const Tensor inputs = tensor({10.0, 20.0, 30.0, 40.0});
    pieces = split(inputs, /*split_size=*/1, /*dim=*/-1);
  }
  const Tensor output = pieces.at(static_cast<std::size_t>(rank)).contiguous().to(dist::device());
  print("after rank {}: {}\n", rank, output);

  dist::destroy_process_group();
}
