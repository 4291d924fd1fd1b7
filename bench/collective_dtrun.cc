// One rank of collective_bench: dtrun's cpu backend, started by dtrun. With --shared-memory before
// the calls, the tensors lie where the ranks read one another's in place.
#include <optional>
#include <string_view>

#include "bench/group_contender.h"
#include "collective_contender.h"
#include "dtrun/runtime/worker.h"

int main(int argc, char** argv) {
  const dtrun::runtime::Worker worker = dtrun::runtime::init();
  std::shared_ptr<dtrun::tensors::HostAllocator> memory;
  std::optional<dtrun::tensors::HostAllocatorScope> scope;
  if (argc > 1 && std::string_view(argv[1]) == "--shared-memory") {
    scope.emplace(*(memory = worker.world().shared_memory()));
    --argc;
    ++argv;
  }
  dtrun::bench::GroupContender dtrun(worker.world(), worker.store(), worker.device());
  return dtrun::bench::run_contender(dtrun, argc, argv);
}
