// A program of the job on GPUs, for scripts/gpu-check: `gpu_program BACKEND [FOLDER]`, under dtrun.
// Ranks beyond the number of GPUs share them. With a folder, a checkpoint is saved there of the
// device and loaded on the CPU, and saved of the CPU and loaded on the device.
#include <cstdio>

#include "dtrun/dtrun.h"

using namespace dtrun;

namespace {

/// What is saved of one device is, loaded on the other, the same.
bool travels(const std::string& folder, Device from, Device to) {
  constexpr std::int64_t kCount = 300'001;  // more than a block of a checkpoint
  const Tensor saved = arange(kCount, {.dtype = DType::f32, .device = from});
  const Tensor loaded = zeros({kCount}, {.dtype = DType::f32, .device = to});
  dcp::save(folder, {{"x", saved}}, {.existing = dcp::Existing::replace});
  dcp::load(folder, {{"x", loaded}});
  const bool same = loaded.device() == to && loaded.to_vector() == saved.to_vector();
  print("[Rank {}] a checkpoint from {} to {}: {}", dist::get_rank(), from.to_string(),
        to.to_string(), same ? "the same" : "differs");
  return same;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) {
    std::fprintf(stderr, "usage: gpu_program BACKEND [FOLDER]\n");
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
  bool passes = seen == expected;
  if (argc == 3) {
    const Device cpu{DeviceType::cpu};
    passes = travels(argv[2], device, cpu) && travels(argv[2], cpu, device) && passes;
  }
  dist::barrier();
  dist::destroy_process_group();
  return passes ? 0 : 1;
}
