// Sums a vector over all ranks and prints whether the sum is right and how many bytes went by which
// transport.
#include <string>

#include "dtrun/dtrun.h"

using namespace dtrun;

int main() {
  const Worker worker = init();
  const int n = worker.world_size();
  const Tensor tensor = full({1 << 18}, worker.rank() + 1);
  worker.world().all_reduce(tensor);
  const bool right = equal(tensor, full({1 << 18}, n * (n + 1) / 2));
  const collectives::TransportCounters counters = worker.world().counters();
  const auto carried = [](std::uint64_t bytes) { return bytes > 0 ? "some" : "none"; };
  print("rank {} sum {} shared memory {} tcp {}", worker.rank(), right ? "right" : "wrong",
        carried(counters.shared_memory_bytes_sent + counters.shared_memory_bytes_received),
        carried(counters.tcp_bytes_sent + counters.tcp_bytes_received));
}
