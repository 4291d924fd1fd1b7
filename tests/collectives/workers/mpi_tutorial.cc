// The tutorial's calls over backend mpi, as a user writes them.
#include "dtrun/dtrun.h"

using namespace dtrun;

int main() {
  dist::init_process_group("mpi");
  const int rank = dist::get_rank();
  const int size = dist::get_world_size();
  const Tensor tensor = ones({2}) * (rank + 1);
  dist::all_reduce(tensor);
  const Tensor token = zeros({1});
  if (rank > 0) dist::recv(token, rank - 1);
  if (rank + 1 < size) dist::send(token + ones({1}), rank + 1);
  print("rank {} of {}: {} {}", rank, size, tensor.to_vector(), token.item());
  dist::destroy_process_group();
}
