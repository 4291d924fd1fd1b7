// transports [FILE]: sums a vector over all ranks, again and again until there is that file, and
// prints whether the sums are right and how many bytes went by which transport.
#include <filesystem>
#include <string>

#include "dtrun/dtrun.h"

using namespace dtrun;

int main(int argc, char** argv) {
  const Worker worker = init();
  const int n = worker.world_size();
  const auto sum_is_right = [&](std::int64_t count) {
    const Tensor tensor = full({count}, worker.rank() + 1);
    worker.world().all_reduce(tensor);
    return equal(tensor, full({count}, n * (n + 1) / 2));
  };
  bool right = sum_is_right(1 << 18);
  if (worker.rank() == 0) print("the first sum is there");
  // Large ones, of which every rank learns at the same time that it was the last.
  for (bool last = argc < 2; !last;) {
    right = sum_is_right(1 << 21) && right;
    const Tensor is_there = full({1}, std::filesystem::exists(argv[1]) ? 1 : 0);
    worker.world().all_reduce(is_there, ReduceOp::max);
    last = is_there.item() != 0;
  }
  const collectives::TransportCounters counters = worker.world().counters();
  const auto carried = [](std::uint64_t bytes) { return bytes > 0 ? "some" : "none"; };
  print("rank {} sum {} shared memory {} tcp {}", worker.rank(), right ? "right" : "wrong",
        carried(counters.shared_memory_bytes_sent + counters.shared_memory_bytes_received),
        carried(counters.tcp_bytes_sent + counters.tcp_bytes_received));
}
