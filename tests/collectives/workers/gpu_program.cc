// A program of the job on GPUs, for scripts/gpu-check: `gpu_program BACKEND`, under dtrun. Ranks
// beyond the number of GPUs share them.
#include <cstdio>

#include "dtrun/dtrun.h"

using namespace dtrun;

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: gpu_program BACKEND\n");
    return 64;
  }
  dist::init_process_group(argv[1]);
  const int rank = dist::get_rank();
  const int size = dist::get_world_size();
  const Device device = dist::device();

  // No call here waits for the device but the last: the order of the streams must do.
  const Tensor x = full({1000}, rank + 1, {.dtype = DType::f32, .device = device});
  const Tensor y = x + x;
  dist::all_reduce(y);
  const Tensor z = y + y;
  const double expected = 2.0 * size * (size + 1);
  const double seen = sum(z).item() / 1000;
  print("[Rank {}] on {} with {}: {}, expected {}", rank, device.to_string(), argv[1], seen,
        expected);
  dist::barrier();
  dist::destroy_process_group();
  return seen == expected ? 0 : 1;
}
